"""What production pods are predicted to leave for mid pods, and want at most."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.prediction.mid_forecast import (
    NodePeaks,
    PredictedPod,
    ProdReclaimable,
    prod_reclaimable,
)
from testbed.node_loads import GIB, WHOLE, pod, use

DAY_S = 86_400
QUIET = NodePeaks(system=use(), prod=use(), unclassed=use())


def predicted(
    name: str,
    request: tuple[int, int | None] = (4_000, 40),
    peak: tuple[int, int] | None = (1_000, 10),
    *,
    age_s: int = 2 * DAY_S,
    deleting: bool = False,
    **more,
) -> PredictedPod:
    forecast = None if peak is None else use(*peak)
    return PredictedPod.of(pod(name, *request, **more), peak=forecast, age_s=age_s, deleting=deleting)


def figured(*pods: PredictedPod, node: NodePeaks = QUIET, allocatable=WHOLE, margin_pct: int = 0) -> ProdReclaimable:
    return prod_reclaimable(pods, node, allocatable=allocatable, cold_start_s=DAY_S, safety_margin_pct=margin_pct)


sizes = st.tuples(st.integers(0, 20_000), st.integers(0, 200))
fleets = st.lists(
    st.builds(
        predicted,
        st.sampled_from("abcdef"),
        sizes,
        st.none() | sizes,
        age_s=st.sampled_from([0, DAY_S, DAY_S + 1, 9 * DAY_S]),
        deleting=st.booleans(),
        phase=st.sampled_from(["Running", "Pending", "Succeeded", "Failed", "Unknown"]),
        qos_label=st.sampled_from(["LS", "BE"]),
    ),
    max_size=8,
)
some_use = st.builds(use, st.integers(0, 8_000), st.integers(0, 80))
nodes = st.builds(NodePeaks, system=some_use, prod=some_use, unclassed=some_use)


@given(fleets, nodes, st.integers(-100, 200))
def test_never_negative_never_more_than_the_node_has_or_production_asked_for(pods, node, margin_pct) -> None:
    found = figured(*pods, node=node, margin_pct=margin_pct)
    left = found.reclaimable

    assert left is not None
    assert 0 <= left.cpu_milli <= 10_000
    assert 0 <= left.mem_bytes <= 100 * GIB
    assert left.cpu_milli <= sum(each.request.cpu_milli for each in pods if each.of_prod)


@given(fleets, nodes, st.integers(-100, 200), st.integers(0, 50))
def test_a_larger_margin_leaves_no_more_and_wants_no_less(pods, node, margin_pct, more_pct) -> None:
    small, large = (figured(*pods, node=node, margin_pct=pct) for pct in (margin_pct, margin_pct + more_pct))

    assert large.reclaimable is not None
    assert small.reclaimable is not None
    assert large.peak is not None
    assert small.peak is not None
    assert large.reclaimable.cpu_milli <= small.reclaimable.cpu_milli
    assert large.reclaimable.mem_bytes <= small.reclaimable.mem_bytes
    assert large.peak.cpu_milli >= small.peak.cpu_milli
    assert large.peak.mem_bytes >= small.peak.mem_bytes


@given(fleets, nodes)
def test_what_is_wanted_is_at_least_both_peaks_and_what_is_left_at_most_both_figures(pods, node) -> None:
    found = figured(*pods, node=node, margin_pct=10)

    for each in ("cpu_milli", "mem_bytes"):
        assert getattr(found.peak, each) == max(getattr(found.pod_peak, each), getattr(found.node_peak, each))
        assert getattr(found.reclaimable, each) == min(getattr(found.by_pods, each), getattr(found.by_node, each))


@given(st.lists(sizes, unique=True, max_size=6), nodes, st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(requests, node, random) -> None:
    pods = [predicted(f"p{index}", request) for index, request in enumerate(requests)]

    assert figured(*pods, node=node) == figured(*random.sample(pods, len(pods)), node=node)
