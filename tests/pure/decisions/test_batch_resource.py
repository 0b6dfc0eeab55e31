"""What batch pods may ask for on a node."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NOTHING, NodeLoad, degraded
from testbed.node_loads import GIB, batch_pod, facts, load, pod, pods_and_metrics, use, used, uses

PLAIN = Colocation(cpu_reclaim_threshold_pct=100, mem_reclaim_threshold_pct=100)


def figured(node: NodeLoad, **strategy) -> tuple[int, float]:
    """Millicores and GiB."""
    batch = batch_resource(node, msgspec.structs.replace(PLAIN, **strategy))
    return batch.cpu_milli, batch.mem_bytes / GIB


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(load(), (10_000, 100), id="an empty node gives everything"),
        pytest.param(load(pod("a", 4_000, 40), metrics=[used("a", 1_000, 10)]), (9_000, 90), id="what is used is kept"),
        pytest.param(load(pod("a", 4_000, 40)), (6_000, 60), id="a pod without a metric keeps what it asked for"),
        pytest.param(load(pod("a")), (10_000, 100), id="a pod that asks for nothing and has no metric keeps nothing"),
        pytest.param(
            load(pod("a", 4_000, 40, qos_label="LSE"), metrics=[used("a", 1_000, 10)]), (6_000, 90),
            id="exclusive CPUs stay whole, their memory does not",
        ),
        pytest.param(
            load(pod("a", 4_000, 40, qos_label="LSE"), metrics=[used("a", 5_000, 50)]), (6_000, 50),
            id="exclusive CPUs count as asked for even where more is used",
        ),
        pytest.param(load(pod("a", 4_000, 40, phase="Succeeded")), (10_000, 100), id="a finished pod keeps nothing"),
        pytest.param(load(pod("a", 4_000, 40, phase="Pending")), (6_000, 60), id="a pending pod keeps its request"),
        pytest.param(
            load(pod("a", 4_000, phase="Failed"), metrics=[used("a", 1_000)]), (9_000, 100),
            id="use of a finished pod is use without a pod",
        ),
        pytest.param(load(batch_pod("b", 3_000, 9), metrics=[used("b", 2_000, 9)]), (10_000, 100),
                     id="batch pods take nothing from themselves"),
        pytest.param(load(metrics=[used("gone", 500, 5, "")]), (9_500, 95), id="use without a pod counts"),
        pytest.param(load(metrics=[used("gone", 500, 5, "koord-free")]), (10_000, 100), id="but not of low classes"),
        pytest.param(load(metrics=[used("a", 500), used("a", 700)]), (9_300, 100), id="the last metric of a pod wins"),
        pytest.param(load(system=use(1_000, 3), host_use=use(200, 1)), (8_800, 96), id="the system and host services"),
        pytest.param(
            load(system=use(1_000, 1), allocatable=Resources(cpu_milli=8_000, mem_bytes=98 * GIB)), (8_000, 98),
            id="what the kubelet reserves, where it is more",
        ),
        pytest.param(load(pod("a", 20_000, 200)), (0, 0), id="never below nothing"),
        pytest.param(NodeLoad(facts=NodeFacts(name="n", capacity=Resources(), allocatable=Resources()), pods=[],
                              metrics=[], system=use()), (0, 0), id="a node without capacity gives nothing"),
    ],
)  # fmt: skip
def test_what_latency_sensitive_pods_leave(node: NodeLoad, expected: tuple[int, int]) -> None:
    assert figured(node) == expected


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param({}, (9_000, 90), id="usage"),
        pytest.param({"cpu_calculate_policy": "maxUsageRequest"}, (6_000, 90), id="the larger of use and request"),
        pytest.param({"mem_calculate_policy": "maxUsageRequest"}, (9_000, 60), id="the same of memory"),
        pytest.param({"mem_calculate_policy": "request"}, (9_000, 58), id="memory by request"),
        pytest.param({"cpu_calculate_policy": "request"}, (9_000, 90), id="CPU by request is by usage"),
        pytest.param({"mem_calculate_policy": "odd"}, (9_000, 90), id="any other text is usage"),
        pytest.param({"cpu_reclaim_threshold_pct": 60}, (5_000, 90), id="a margin of 40%"),
        pytest.param({"mem_reclaim_threshold_pct": 110}, (9_000, 100), id="more than everything, by a negative margin"),
        pytest.param({"batch_cpu_threshold_pct": 30}, (3_000, 90), id="a cap"),
        pytest.param({"batch_mem_threshold_pct": 0}, (9_000, 0), id="a cap of nothing is a cap"),
    ],
)
def test_the_policy_says_by_what(strategy: dict, expected: tuple[int, int]) -> None:
    """A pod asks for 4 CPUs and 40 GiB, uses 1 and 10; one without a metric asks for 2 GiB where that counts."""
    pods = [pod("a", 4_000, 40)]
    if strategy.get("mem_calculate_policy") == "request":
        pods.append(pod("b", 0, 2))

    assert figured(load(*pods, metrics=[used("a", 1_000, 10)]), **strategy) == expected


def test_by_the_larger_a_pod_without_a_metric_does_not_count() -> None:
    """The reference's rule on the node (in its zones it counts)."""
    assert figured(load(pod("a", 4_000)), cpu_calculate_policy="maxUsageRequest") == (10_000, 100)


def test_use_without_a_pod_counts_by_the_larger_but_not_by_request() -> None:
    node = load(metrics=[used("gone", 500, 5, "")])

    assert figured(node, cpu_calculate_policy="maxUsageRequest", mem_calculate_policy="maxUsageRequest") == (9_500, 95)
    assert figured(node, mem_calculate_policy="request") == (9_500, 100)


def test_by_request_the_systems_use_does_not_count_but_what_is_reserved_does() -> None:
    node = load(system=use(0, 50), reserved=Resources(mem_bytes=10 * GIB))

    assert figured(node, mem_calculate_policy="request") == (10_000, 90)


def test_the_terms_are_the_arithmetic_in_its_order() -> None:
    node = load(pod("a", 4_000, 40), metrics=[used("a", 1_000, 10)], system=use(300, 2), host_use=use(50, 1))
    assert (NOTHING.cpu_milli, NOTHING.mem_bytes) == (0, 0)
    cpu, mem = batch_resource(node, Colocation(batch_cpu_threshold_pct=20)).because

    assert (cpu.of, cpu.bound) == ("batch_cpu_milli", "capped")
    assert list(cpu.terms.items()) == [
        ("capacity_milli", 10_000), ("margin_milli", 4_000), ("system_milli", 350), ("reserved_milli", 0),
        ("system_or_reserved_milli", 350), ("high_priority_milli", 1_000), ("available_milli", 4_650),
        ("cap_milli", 2_000), ("batch_milli", 2_000),
    ]  # fmt: skip
    assert (mem.of, mem.bound, mem.terms["batch_bytes"]) == ("batch_memory_bytes", "formula", 52 * GIB)


def test_an_exhausted_node_says_by_how_much() -> None:
    because = batch_resource(load(pod("a", 12_000)), PLAIN).because[0]

    assert (because.bound, because.terms["available_milli"], because.terms["batch_milli"]) == ("exhausted", -2_000, 0)
    assert batch_resource(load(pod("a", 10_000)), PLAIN).because[0].bound == "exhausted"
    assert batch_resource(load(pod("a", 9_999)), PLAIN).because[0].bound == "formula"


@given(pods_and_metrics(), uses, st.integers(0, 100), st.integers(0, 5_000))
def test_never_more_than_use_and_margin_leave(mixed: tuple, system, reclaim_pct: int, reserved: int) -> None:
    """Under the usage policy, published <= max(0, capacity - margin - max(system, reserved) - LS used)."""
    pods, metrics = mixed
    node = load(*pods, metrics=metrics, system=system, reserved=Resources(cpu_milli=reserved))
    strategy = Colocation(cpu_reclaim_threshold_pct=reclaim_pct)
    measured = {metric.uid: metric.use.cpu_milli for metric in metrics}
    ls_used = sum(measured.get(one.uid, 0) for one in pods if one.qos_label not in {"BE", "LSE"} and _live(one))
    margin = int(10_000 * ((100 - reclaim_pct) / 100))

    assert batch_resource(node, strategy).cpu_milli <= max(
        0, 10_000 - margin - max(system.cpu_milli, reserved) - ls_used
    )


def _live(one) -> bool:
    return one.phase in {"Running", "Pending"}


@given(pods_and_metrics(), st.integers(0, 5_000), st.sampled_from(["usage", "maxUsageRequest"]))
def test_more_latency_sensitive_use_never_gives_more(mixed: tuple, more_milli: int, policy: str) -> None:
    pods, metrics = mixed
    calm = load(pod("ls", 1_000), *pods, metrics=[*metrics, used("ls", 500)])
    busy = load(pod("ls", 1_000), *pods, metrics=[*metrics, used("ls", 500 + more_milli)])

    assert figured(busy, cpu_calculate_policy=policy)[0] <= figured(calm, cpu_calculate_policy=policy)[0]


@given(pods_and_metrics(), st.randoms(use_true_random=False))
def test_the_order_of_pods_and_metrics_does_not_matter(mixed: tuple, random) -> None:
    pods, metrics = mixed
    shuffled = random.sample(pods, len(pods)), random.sample(metrics, len(metrics))

    assert batch_resource(load(*shuffled[0], metrics=shuffled[1]), PLAIN) == batch_resource(
        load(*pods, metrics=metrics), PLAIN
    )


@pytest.mark.parametrize(
    ("updated_s", "expected"),
    [
        pytest.param(None, {"limit_s": 900}, id="never reported"),
        pytest.param(100, None, id="at the limit it is young enough"),
        pytest.param(99, {"age_s": 901, "limit_s": 900}, id="a second later it is not"),
        pytest.param(5_000, None, id="from the future it is"),
    ],
)
def test_an_old_metric_figures_nothing(updated_s: int | None, expected: dict | None) -> None:
    assert degraded(now_s=1_000, updated_s=updated_s, degrade_time_min=15) == expected


def test_a_node_without_amounts_is_a_node_of_nothing() -> None:
    bare = msgspec.structs.replace(facts(), capacity=Resources(), allocatable=Resources())

    node = NodeLoad(facts=bare, pods=[], metrics=[], system=use())

    assert figured(node) == (0, 0)
    assert [next(iter(one.terms.values())) for one in batch_resource(node, PLAIN).because] == [0, 0]
