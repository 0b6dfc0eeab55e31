"""Whether a node has CPU to lend to throttled containers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.burst.cpu_burst_node_state import SharePool, SharePoolPod, share_pool
from testbed.cpu_cases import answered, labels


def pod(qos_label: str | None, request_milli: int = 0, used_cores: float | None = None) -> SharePoolPod:
    return SharePoolPod(qos_label=qos_label, request_milli=request_milli, used_cores=used_cores)


def pool(used_cores: float | None, *pods: SharePoolPod, node_cpus: int = 10, threshold_pct: int = 50) -> SharePool:
    return share_pool(node_cpus=node_cpus, node_used_cores=used_cores, pods=pods, threshold_pct=threshold_pct)


@pytest.mark.parametrize(
    ("state", "used_cores", "pods"),
    [
        pytest.param("overload", 5.0, [], id="half of it, the threshold"),
        pytest.param("cooling", 4.99, [], id="just below"),
        pytest.param("cooling", 4.5, [], id="nine tenths of the threshold"),
        pytest.param("idle", 4.49, [], id="just below that"),
        pytest.param("idle", 0.0, [], id="nothing is used"),
        pytest.param("overload", 4.0, [pod("LSR", 2_000)], id="an LSR pod's CPUs are not the pool's"),
        pytest.param("overload", 4.0, [pod("LSE", 2_000)], id="nor an LSE pod's"),
        pytest.param("overload", 4.75, [pod("LSR", 500)], id="nor half a CPU of one"),
        pytest.param("idle", 4.0, [pod("LS", 2_000)], id="an LS pod's are"),
        pytest.param("idle", 4.0, [pod("BE", 2_000)], id="and a BE pod's"),
        pytest.param("cooling", 6.0, [pod("LSR", 2_000, 2.1)], id="an LSR pod's use is not the pool's"),
        pytest.param("cooling", 6.0, [pod("LSE", 2_000, 2.1)], id="nor an LSE pod's use"),
        pytest.param("cooling", 6.0, [pod("BE", 0, 1.1)], id="nor a BE pod's use"),
        pytest.param("overload", 6.0, [pod("LS", 0, 1.1)], id="an LS pod's use is"),
        pytest.param("overload", 6.0, [pod(None, 0, 1.1)], id="and that of a pod without a class"),
        pytest.param("overload", 6.0, [pod("lsr", 2_000, 2.1)], id="or of one nobody knows"),
        pytest.param("idle", 3.0, [pod("BE", 0, 9.0)], id="pods may have used more than the node, by their metrics"),
    ],
)
def test_states(state: str, used_cores: float, pods: list[SharePoolPod]) -> None:
    result = pool(used_cores, *pods)

    assert (result.state, result.bound) == (state, "formula")


def test_without_a_metric_the_state_is_unknown() -> None:
    result = pool(None, pod("LSR", 20_000))

    assert (result.state, result.bound, result.terms) == ("unknown", "no_metric", {})


@pytest.mark.parametrize("request_milli", [10_000, 12_000])
def test_without_a_share_pool_all_of_it_counts_as_used(request_milli: int) -> None:
    result = pool(0.0, pod("LSE", request_milli))

    assert (result.state, result.bound, result.terms["used_ratio"]) == ("overload", "no_share_pool", 1.0)
    assert pool(0.0, pod("LSE", request_milli), threshold_pct=110).state == "cooling"


def test_a_pool_of_a_thousandth_of_a_cpu_is_one() -> None:
    result = pool(0.0, pod("LSE", 9_999))

    assert (result.state, result.bound) == ("idle", "formula")


def test_a_node_without_cpus_divides_by_nothing() -> None:
    assert pool(0.0, node_cpus=0).bound == "no_share_pool"


def test_the_terms_are_the_arithmetic_in_order() -> None:
    assert list(pool(4.0, pod("LSR", 2_000, 1.5), pod("BE", 500, 0.5)).terms.items()) == [
        ("node_cores", 10),
        ("owned_milli", 2_000),
        ("pool_cores", 8.0),
        ("node_used_cores", 4.0),
        ("pool_used_cores", 2.0),
        ("cooling_ratio", 0.45),
        ("threshold_ratio", 0.5),
        ("used_ratio", 0.25),
    ]


WORSE = {"idle": 0, "cooling": 1, "overload": 2}
pods = st.lists(
    st.builds(
        SharePoolPod, qos_label=labels, request_milli=st.integers(0, 9_000), used_cores=st.none() | st.floats(0, 32)
    ),
    max_size=6,
)


@given(st.floats(0, 64), st.floats(0, 64), pods, st.integers(0, 100))
def test_more_use_never_makes_a_node_idler(
    used_cores: float, more: float, running: list[SharePoolPod], threshold_pct: int
) -> None:
    calm = pool(used_cores, *running, threshold_pct=threshold_pct)
    busy = pool(used_cores + more, *running, threshold_pct=threshold_pct)

    assert WORSE[busy.state] >= WORSE[calm.state]


@given(st.floats(0, 64), pods, st.integers(0, 100), st.integers(0, 100))
def test_a_higher_threshold_never_makes_a_node_busier(
    used_cores: float, running: list[SharePoolPod], threshold_pct: int, more_pct: int
) -> None:
    strict = pool(used_cores, *running, threshold_pct=threshold_pct)
    lax = pool(used_cores, *running, threshold_pct=threshold_pct + more_pct)

    assert WORSE[lax.state] <= WORSE[strict.state]


@given(st.floats(0, 64), pods, st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(used_cores: float, running: list[SharePoolPod], random) -> None:
    assert pool(used_cores, *random.sample(running, len(running))) == pool(used_cores, *running)


@pytest.mark.parametrize(
    ("case", "state"),
    [
        pytest.param({"node_cpu_count": 10}, "unknown", id="no metric"),
        pytest.param({"node_cpu_count": 10, "node_cpu_usage_cores": 5, "pods": None}, "overload", id="50% by default"),
        pytest.param(
            {"node_cpu_count": 10, "node_cpu_usage_cores": 5, "share_pool_threshold_percent": 100, "pods": [{}]},
            "idle",
            id="a pod of which nothing is known",
        ),
    ],
)
def test_what_a_case_leaves_out(case: dict, state: str) -> None:
    assert answered("cpu_burst_node_state", case) == {"output": {"node_state": state}}
