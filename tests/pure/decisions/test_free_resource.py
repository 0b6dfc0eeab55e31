"""What koord-free pods may ask for: only what is idle."""

import msgspec
import pytest
from hypothesis import given

from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.resources.batch_resource import batch_resource, free_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad
from testbed.node_loads import GIB, batch_pod, load, pod, pods_and_metrics, use, used

PLAIN = Colocation(cpu_reclaim_threshold_pct=100, mem_reclaim_threshold_pct=100)
FREE = batch_pod("f", 1_000, 4, priority_class_label="koord-free")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(load(), (10_000, 100), id="all of an empty node"),
        pytest.param(load(pod("a", 4_000, 40), metrics=[used("a", 1_000, 10)]), (9_000, 90), id="less what LS uses"),
        pytest.param(load(batch_pod("b", 5_000, 50), metrics=[used("b", 2_000, 20)]), (8_000, 80), id="and batch uses"),
        pytest.param(load(batch_pod("b", 5_000, 50)), (5_000, 50), id="or asked for, where there is no metric"),
        pytest.param(load(batch_pod("b", 5_000, 50, phase="Failed")), (10_000, 100), id="but not if it is over"),
        pytest.param(load(batch_pod("b")), (10_000, 100), id="a batch pod that asks for nothing takes nothing"),
        pytest.param(load(metrics=[used("x", 300, 3, "koord-batch")]), (9_700, 97), id="batch use without a pod"),
        pytest.param(load(FREE, metrics=[used("f", 900, 4)]), (10_000, 100), id="free pods take nothing"),
        pytest.param(load(metrics=[used("x", 300, 3, "koord-free")]), (10_000, 100), id="nor when the pod is gone"),
        pytest.param(load(pod("p", 1_000, 1), metrics=[used("p", 300, 3)]), (9_700, 97), id="production counts once"),
        pytest.param(load(metrics=[used("x", 300, 3, "")]), (9_700, 97), id="use of no class counts once"),
        pytest.param(load(batch_pod("b", 30_000, 300)), (0, 0), id="never less than nothing"),
    ],
)  # fmt: skip
def test_what_nobody_uses(node: NodeLoad, expected: tuple) -> None:
    free = free_resource(node, PLAIN)

    assert (free.cpu_milli, free.mem_bytes / GIB) == expected


def test_use_counts_whatever_the_policy_says_and_no_cap_holds_it() -> None:
    node = load(pod("a", 4_000, 40), metrics=[used("a", 1_000, 10)])
    odd = msgspec.structs.replace(
        PLAIN, cpu_calculate_policy="maxUsageRequest", mem_calculate_policy="request", batch_cpu_threshold_pct=1,
        batch_mem_threshold_pct=1,
    )  # fmt: skip

    assert free_resource(node, odd) == free_resource(node, PLAIN)


def test_the_terms_go_on_where_those_of_batch_end() -> None:
    node = load(batch_pod("b", 1_000, 1), system=use(500, 5))
    cpu, mem = free_resource(node, Colocation()).because

    assert (cpu.of, cpu.bound, mem.of) == ("free_cpu_milli", "formula", "free_memory_bytes")
    assert list(cpu.terms)[-3:] == ["available_milli", "batch_used_milli", "free_milli"]
    assert list(cpu.terms.values())[-3:] == [5_500, 1_000, 4_500]
    assert "batch_milli" not in cpu.terms


@pytest.mark.parametrize(("asked_milli", "bound"), [(9_999, "formula"), (10_000, "exhausted"), (10_001, "exhausted")])
def test_a_node_without_anything_idle_says_so(asked_milli: int, bound: str) -> None:
    assert free_resource(load(batch_pod("b", asked_milli)), PLAIN).because[0].bound == bound


@given(pods_and_metrics())
def test_never_more_than_batch_pods_may_ask_for(mixed: tuple) -> None:
    pods, metrics = mixed
    node = load(*pods, metrics=metrics)

    assert free_resource(node, PLAIN).cpu_milli <= batch_resource(node, PLAIN).cpu_milli
    assert free_resource(node, PLAIN).mem_bytes <= batch_resource(node, PLAIN).mem_bytes
