"""What production pods are predicted to leave for mid pods, and want at most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.schemas.metric import Use
from slacktide.streams.decisions.prediction.prod_reclaimable import (
    NodePeaks,
    PredictedPod,
    ProdReclaimable,
    prod_reclaimable,
)
from testbed.node_loads import GIB, WHOLE, batch_pod, pod, use

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


def amounts(each: Use | None) -> tuple[int, float] | None:
    return None if each is None else (each.cpu_milli, each.mem_bytes / GIB)


@pytest.mark.parametrize(
    ("pods", "left", "peak"),
    [
        pytest.param([], (0, 0), (0, 0), id="no pods leave nothing"),
        pytest.param([predicted("a")], (3_000, 30), (1_000, 10), id="its request less its peak"),
        pytest.param([predicted("a"), predicted("b", (2_000, 20))], (4_000, 40), (2_000, 20), id="pods add up"),
        pytest.param(
            [predicted("a"), predicted("b", (1_000, 10), (3_000, 5))],
            (3_000, 35),
            (4_000, 15),
            id="a pod above its request takes nothing from the others",
        ),
        pytest.param([predicted("a", (2_000, None))], (1_000, 0), (1_000, 10), id="without a request nothing is left"),
        pytest.param([predicted("a", age_s=DAY_S)], (0, 0), (4_000, 40), id="a young pod wants its request"),
        pytest.param([predicted("a", age_s=DAY_S + 1)], (3_000, 30), (1_000, 10), id="a second later it is predicted"),
        pytest.param([predicted("a", peak=None)], (0, 0), (4_000, 40), id="so does one without a model"),
        pytest.param([predicted("a", deleting=True)], (0, 0), (0, 0), id="one that is being deleted wants nothing"),
        pytest.param([predicted("a", phase="Succeeded")], (0, 0), (0, 0), id="nor does one that is over"),
        pytest.param([predicted("a", phase="Failed", peak=None)], (0, 0), (0, 0), id="with a model or without"),
        pytest.param(
            [predicted("a", phase="Failed", age_s=5)],
            (0, 0),
            (4_000, 40),
            id="but a young one counts though it is over",
        ),
        pytest.param([predicted("a", phase="Pending")], (3_000, 30), (1_000, 10), id="a pending pod counts"),
        pytest.param([predicted("a", priority=7_500)], (0, 0), (0, 0), id="a mid pod does not"),
        pytest.param([predicted("a"), predicted("a")], (3_000, 30), (1_000, 10), id="a pod listed twice counts once"),
        pytest.param(
            [predicted("a", exclusive_cpus="2-5"), predicted("b")],
            (3_000, 60),
            (5_000, 20),
            id="CPUs that a pod has alone count as its peak, and its memory does not",
        ),
        pytest.param(
            [predicted("a", (50_000, 500)), predicted("b")], (8_000, 80), (2_000, 20), id="at most what the node has"
        ),
    ],
)
def test_by_pods(pods, left, peak) -> None:
    found = figured(*pods)

    assert amounts(found.by_pods) == left
    assert amounts(found.pod_peak) == peak


def test_batch_pods_are_not_predicted() -> None:
    one = PredictedPod.of(batch_pod("b", 1_000, 1), peak=use(1, 1), age_s=2 * DAY_S, deleting=False)

    assert figured(one, predicted("a")) == figured(predicted("a"))


def test_the_refused_are_named_in_order_once_for_each_time() -> None:
    pods = [predicted("b", peak=None), predicted("a"), predicted("a"), predicted("c", peak=None), predicted("b")]

    assert figured(*pods).refused == ("b", "a", "c", "b")


@pytest.mark.parametrize(
    "spared",
    [{"age_s": 5}, {"deleting": True}, {"phase": "Succeeded"}, {"qos_label": "BE"}],
    ids=["young", "deleting", "over", "batch"],
)
def test_a_pod_that_is_not_predicted_needs_no_model(spared) -> None:
    assert figured(predicted("a", peak=None, **spared)).refused == ()


NODE = NodePeaks(system=use(500, 5), prod=use(2_000, 20), unclassed=use(25, 1))


@pytest.mark.parametrize(
    ("pods", "left"),
    [
        pytest.param([], (0, 0), id="no pods leave nothing"),
        pytest.param([predicted("a")], (1_475, 14), id="their requests less the node's peaks"),
        pytest.param([predicted("a", age_s=5)], (1_475, 14), id="a young pod's request counts"),
        pytest.param([predicted("a"), predicted("b", peak=None)], (1_475, 14), id="not that of one without a model"),
        pytest.param([predicted("a"), predicted("a")], (1_475, 14), id="nor a second one of the same uid"),
        pytest.param([predicted("a"), predicted("b", deleting=True)], (1_475, 14), id="nor of one being deleted"),
        pytest.param([predicted("a"), predicted("b", phase="Failed", age_s=5)], (1_475, 14), id="nor of one over"),
        pytest.param([predicted("a", (99_000, 990))], (7_475, 74), id="at most what the node has"),
    ],
)
def test_by_node(pods, left) -> None:
    found = figured(*pods, node=NODE)

    assert amounts(found.by_node) == left
    assert amounts(found.node_peak) == (2_525, 26)


def test_less_is_left_and_more_is_wanted_by_the_more_careful_figure_of_each_resource() -> None:
    node = NodePeaks(system=use(), prod=use(2_000, 5), unclassed=use())
    found = figured(predicted("a"), node=node)

    assert (amounts(found.by_pods), amounts(found.by_node)) == ((3_000, 30), (2_000, 35))
    assert amounts(found.reclaimable) == (2_000, 30)
    assert amounts(found.peak) == (2_000, 10)
    assert [each.bound for each in found.because] == ["node", "pods"]


@pytest.mark.parametrize("kind", ["system", "prod", "unclassed"])
def test_without_one_of_the_nodes_models_nothing_is_forecast(kind) -> None:
    peaks = {"system": use(1), "prod": use(1), "unclassed": use(1)} | {kind: None}
    found = figured(predicted("a"), node=NodePeaks(**peaks))

    assert (found.by_node, found.node_peak, found.reclaimable, found.peak) == (None, None, None, None)
    assert amounts(found.by_pods) == (3_000, 30)
    assert [each.bound for each in found.because] == ["no_forecast", "no_forecast"]
    assert "reclaimable_milli" not in found.because[0].terms


def test_an_amount_that_allocatable_lacks_counts_as_none() -> None:
    found = figured(predicted("a"), allocatable=Resources(mem_bytes=100 * GIB))

    assert (found.because[0].terms["allocatable_milli"], amounts(found.by_pods)) == (0, (0, 30))


def test_of_cpus_that_a_pod_has_alone_the_node_leaves_nothing() -> None:
    found = figured(predicted("a", exclusive_cpus="2-5"), predicted("b"))

    assert (amounts(found.by_node), amounts(found.node_peak)) == ((5_000, 80), (3_000, 0))


def test_without_allocatable_there_are_peaks_alone() -> None:
    found = figured(predicted("a"), node=NODE, allocatable=None)

    assert (found.by_pods, found.by_node, found.reclaimable) == (None, None, None)
    assert amounts(found.peak) == (2_525, 26)
    assert found.because[0].bound == "no_forecast"


def test_a_resource_that_the_node_does_not_have_is_not_left() -> None:
    assert amounts(figured(predicted("a"), allocatable=Resources(cpu_milli=9_000)).reclaimable) == (3_000, 0)
    assert amounts(figured(predicted("a"), allocatable=Resources(mem_bytes=90 * GIB)).reclaimable) == (0, 30)


def test_the_margin_is_taken_of_each_pods_peak_and_once_of_the_nodes_sum() -> None:
    """99 x 1.1 is 108 and a fraction; three times that is 324, of their sum it is 326."""
    pods = [predicted(name, (1_000, 10), (99, 1)) for name in "abc"]
    node = NodePeaks(system=use(99), prod=use(99), unclassed=use(99))
    found = figured(*pods, node=node, margin_pct=10)

    assert found.pod_peak.cpu_milli == 3 * 108
    assert found.node_peak is not None
    assert found.node_peak.cpu_milli == 326
    assert figured(*pods, node=node, margin_pct=-100).peak == use()


def test_the_terms_are_the_arithmetic() -> None:
    found = figured(predicted("a"), predicted("y", (1_000, 10), age_s=5), node=NODE, margin_pct=10)
    cpu, mem = found.because

    assert (cpu.of, cpu.bound, mem.of) == ("cpu_milli", "node", "memory_bytes")
    assert list(cpu.terms.items()) == [
        ("safety_margin_pct", 10), ("allocatable_milli", 10_000), ("unknown_request_milli", 1_000),
        ("pods_peak_milli", 1_100), ("pods_free_milli", 2_900), ("by_pods_milli", 2_900),
        ("prod_request_milli", 5_000), ("system_peak_milli", 500), ("prod_peak_milli", 2_000),
        ("unclassed_peak_milli", 25), ("node_peak_milli", 2_777), ("node_free_milli", 2_223),
        ("by_node_milli", 2_223), ("reclaimable_milli", 2_223),
    ]  # fmt: skip
    assert mem.terms["allocatable_bytes"] == 100 * GIB


@pytest.mark.parametrize(
    ("allocatable_milli", "bound"),
    [pytest.param(4_000, "pods", id="it has just as much"), pytest.param(3_999, "allocatable", id="it has less")],
)
def test_the_nodes_allocatable_is_named_where_it_bounds(allocatable_milli, bound) -> None:
    found = figured(
        predicted("a"), node=NodePeaks(system=use(), prod=use(500), unclassed=use()),
        allocatable=Resources(cpu_milli=allocatable_milli),
    )  # fmt: skip

    assert found.because[0].bound == bound


def test_where_both_leave_the_same_the_node_is_named() -> None:
    node = NodePeaks(system=use(), prod=use(1_000), unclassed=use())

    assert figured(predicted("a"), node=node).because[0].bound == "node"


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
