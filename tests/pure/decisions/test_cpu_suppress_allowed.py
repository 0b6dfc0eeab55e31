"""The CPU that best-effort pods may use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.suppress.cpu_suppress_allowed import Allowed, CpuUse, be_allowed_cpu
from testbed.cpu_cases import answered


def use(cores: float | None, *, best_effort: bool = False) -> CpuUse:
    return CpuUse(used_cores=cores, best_effort=best_effort)


def allowed(**more) -> Allowed:
    """Of ten CPUs 65% are shared out; 3 of the 5 that are used are those of a latency-sensitive pod."""
    node = {
        "capacity_milli": 10_000,
        "reserved_milli": 0,
        "node_used_cores": 5.0,
        "pods": [use(3.0)],
        "threshold_pct": 65,
    }
    return be_allowed_cpu(**node | more)


@pytest.mark.parametrize(
    ("more", "milli"),
    [
        pytest.param({}, 6_500 - 3_000 - 2_000, id="what nobody accounts for is the system's"),
        pytest.param({"pods": [use(3.0), use(None)]}, 1_500, id="a pod without a metric counts nothing"),
        pytest.param({"pods": [use(3.0), use(1.5, best_effort=True)]}, 3_000, id="best-effort use only lowers system"),
        pytest.param({"hosts": [use(1.0)]}, 1_500, id="a host application instead of the system"),
        pytest.param({"hosts": [use(1.0, best_effort=True)]}, 2_500, id="a best-effort host application"),
        pytest.param({"hosts": [use(None)]}, 1_500, id="one without a metric"),
        pytest.param({"reserved_milli": 2_500}, 1_000, id="the system is at least what is reserved"),
        pytest.param({"reserved_milli": 1_500}, 1_500, id="which it may exceed"),
        pytest.param({"node_used_cores": 2.0}, 3_500, id="pods above the node leave no negative system"),
        pytest.param({"pods": [use(9.0)], "node_used_cores": 9.5}, -3_000, id="below nothing is not cut off"),
        pytest.param({"reserved_milli": 1_001, "node_used_cores": 3.0}, 2_500, id="1.001 cores are 1000 millicores"),
        pytest.param({"pods": [use(1.0009), use(0.0009)], "node_used_cores": 0.0}, 5_499, id="sums, then cut off"),
        pytest.param({"threshold_pct": 0}, -5_000, id="nothing is shared out"),
        pytest.param({"capacity_milli": 1_001, "pods": [], "node_used_cores": 0.0}, 650, id="part of a millicore"),
    ],
)
def test_what_is_allowed(more: dict, milli: int) -> None:
    result = allowed(**more)

    assert (result.allowed_milli, result.bound) == (milli, "formula")


@pytest.mark.parametrize(
    ("min_pct", "milli", "bound"),
    [
        pytest.param(14, 1_500, "formula", id="below what the formula gives"),
        pytest.param(15, 1_500, "formula", id="the same"),
        pytest.param(16, 1_600, "minimum", id="above"),
    ],
)
def test_never_less_than_the_minimum(min_pct: int, milli: int, bound: str) -> None:
    result = allowed(min_pct=min_pct)

    assert (result.allowed_milli, result.bound) == (milli, bound)


def test_the_minimum_is_cut_off_to_a_millicore() -> None:
    """1% of 150 millicores is 1, which the formula gives, too."""
    result = allowed(capacity_milli=150, threshold_pct=1, pods=[], node_used_cores=0.0, min_pct=1)

    assert (result.allowed_milli, result.bound) == (1, "formula")


def test_a_minimum_of_nothing_is_a_minimum() -> None:
    result = allowed(pods=[use(9.0)], min_pct=0)

    assert (result.allowed_milli, result.bound, result.terms["minimum_milli"]) == (0, "minimum", 0)


def test_the_terms_are_the_arithmetic_in_order() -> None:
    assert list(allowed(hosts=[use(0.5)], min_pct=20).terms.items()) == [
        ("capacity_milli", 10_000),
        ("threshold_pct", 65),
        ("ceiling_milli", 6_500),
        ("nonbe_pods_milli", 3_000),
        ("nonbe_hosts_milli", 500),
        ("system_milli", 1_500),
        ("formula_milli", 1_500),
        ("minimum_milli", 2_000),
    ]


cores = st.floats(0, 64, allow_subnormal=False)
uses = st.lists(st.builds(CpuUse, used_cores=st.none() | cores, best_effort=st.booleans()), max_size=6)
nodes = st.fixed_dictionaries(
    {
        "capacity_milli": st.integers(0, 128_000),
        "reserved_milli": st.integers(0, 10_000),
        "node_used_cores": cores,
        "pods": uses,
        "hosts": uses,
        "threshold_pct": st.integers(0, 100),
        "min_pct": st.none() | st.integers(0, 100),
    }
)


@given(nodes, cores)
def test_more_use_by_others_never_raises_what_is_allowed(node: dict, more: float) -> None:
    """On the node, too, what the new pod uses is used; rounding may be off by a millicore twice."""
    busy = node | {"pods": [*node["pods"], use(more)], "node_used_cores": node["node_used_cores"] + more}

    assert be_allowed_cpu(**busy).allowed_milli <= be_allowed_cpu(**node).allowed_milli + 2


@given(nodes, st.integers(0, 100))
def test_a_higher_threshold_never_lowers_what_is_allowed(node: dict, more_pct: int) -> None:
    raised = node | {"threshold_pct": node["threshold_pct"] + more_pct}

    assert be_allowed_cpu(**raised).allowed_milli >= be_allowed_cpu(**node).allowed_milli


@given(nodes, st.randoms(use_true_random=False))
def test_the_order_of_pods_and_host_applications_does_not_matter(node: dict, random) -> None:
    shuffled = node | {name: random.sample(node[name], len(node[name])) for name in ("pods", "hosts")}

    assert be_allowed_cpu(**shuffled) == be_allowed_cpu(**node)


@given(nodes)
def test_the_result_is_its_terms(node: dict) -> None:
    result = be_allowed_cpu(**node)
    terms = result.terms

    assert terms["formula_milli"] == (
        terms["ceiling_milli"] - terms["nonbe_pods_milli"] - terms["nonbe_hosts_milli"] - terms["system_milli"]
    )
    assert result.allowed_milli == terms["minimum_milli" if result.bound == "minimum" else "formula_milli"]
    assert result.allowed_milli <= max(node["capacity_milli"], 0)


CASE = {
    "node_capacity_cpu_milli": 10_000,
    "node_allocatable_cpu_milli": 10_000,
    "node_cpu_usage_cores": 5.0,
    "threshold_percent": 65,
}


@pytest.mark.parametrize(
    ("more", "milli"),
    [
        pytest.param({}, 1_500, id="nothing runs: all use is the system's"),
        pytest.param(
            dict.fromkeys(["reserved", "pods", "pod_metrics_without_pod", "host_apps", "min_percent"]),
            1_500,
            id="what may be absent may be null",
        ),
        pytest.param(
            {"pods": [{"qos_class": "LS", "kube_qos_class": "BestEffort", "cpu_usage_cores": 2}]},
            3_500,
            id="an LS pod of Kubernetes' BestEffort class is best-effort",
        ),
        pytest.param(
            {"pods": [{"qos_class": "BE", "kube_qos_class": "Burstable", "cpu_usage_cores": 2}]},
            3_500,
            id="so is a BE pod of another",
        ),
        pytest.param(
            {"pods": [{"qos_class": "be", "kube_qos_class": "Burstable", "cpu_usage_cores": 2}]},
            1_500,
            id="a class nobody knows is not BE",
        ),
        pytest.param(
            {"pod_metrics_without_pod": [{"qos_class": "BE", "cpu_usage_cores": 2}]},
            1_500,
            id="what no pod is known for is not best-effort",
        ),
        pytest.param(
            {"host_apps": [{"qos_class": "BE", "cgroup_base": "KubepodsBesteffort", "cpu_usage_cores": 2}]},
            3_500,
            id="a host application of BE class in the best-effort group",
        ),
        pytest.param(
            {"host_apps": [{"qos_class": "BE", "cgroup_base": "Kubepods", "cpu_usage_cores": 2}]},
            1_500,
            id="elsewhere it is not best-effort",
        ),
        pytest.param(
            {"host_apps": [{"qos_class": "LS", "cgroup_base": "KubepodsBesteffort", "cpu_usage_cores": 2}]},
            1_500,
            id="nor of another class",
        ),
        pytest.param({"node_allocatable_cpu_milli": 4_000}, 500, id="the kubelet keeps six CPUs"),
        pytest.param({"reserved": {"cpu_milli": 6_000}}, 500, id="the annotation does"),
        pytest.param({"reserved": {"cpu_milli": 9_000, "reserved_cpus": "0-5"}}, 500, id="a list replaces the amount"),
        pytest.param(
            {"reserved": {"cpu_milli": 6_000, "reserved_cpus": "0-9999999999"}},
            1_500,
            id="an unreadable list voids the annotation",
        ),
    ],
)
def test_cases(more: dict, milli: int) -> None:
    assert answered("cpu_suppress_allowed", CASE | more) == {"output": {"be_allowed_cpu_milli": milli}}
