"""What mid pods may ask for on a node."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Figured
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad
from testbed.node_loads import GIB, batch_pod, load, pod, pods_and_metrics, use, uses

MID = pod("mid", 5_000, 50, priority=7_500)


def figured(node: NodeLoad, reclaimable=(0, 0), node_use=(0, 0), **strategy) -> Figured:
    return mid_resource(
        node,
        Colocation(**strategy),
        reclaimable=use(*reclaimable),
        node_use=None if node_use is None else use(*node_use),
    )


def amounts(*args, **more) -> tuple[int, float]:
    mid = figured(*args, **more)
    return mid.cpu_milli, mid.mem_bytes / GIB


@pytest.mark.parametrize(
    ("reclaimable", "node_use", "expected"),
    [
        pytest.param((0, 0), (0, 0), (0, 0), id="no prediction, nothing"),
        pytest.param((3_000, 30), (2_000, 20), (3_000, 30), id="what production is predicted to leave"),
        pytest.param((9_000, 90), (4_000, 80), (6_000, 20), id="and at most what is unused"),
        pytest.param((9_000, 90), (12_000, 20), (0, 80), id="never less than nothing"),
        pytest.param((3_000, 30), None, (0, 0), id="nothing counts as unused where the use is not wholly known"),
    ],
)
def test_what_production_leaves(reclaimable, node_use, expected) -> None:
    assert amounts(load(), reclaimable, node_use) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(load(), (5_000, 50), id="half of an empty node"),
        pytest.param(load(pod("a", 4_000, 20)), (3_000, 40), id="less what production asked for"),
        pytest.param(load(pod("a", 4_000, 20, phase="Pending")), (3_000, 40), id="also if it is pending"),
        pytest.param(load(pod("a", 4_000, 20, phase="Failed")), (5_000, 50), id="not if it is over"),
        pytest.param(load(pod("a"), MID, batch_pod("b", 1_000, 1)), (5_000, 50), id="mid and batch pods do not count"),
        pytest.param(load(pod("f", 900, 9, priority_class_label="koord-free")), (5_000, 50), id="nor do free ones"),
        pytest.param(load(system=use(600, 10), host_use=use(400, 10)), (4_500, 40), id="less system and host services"),
        pytest.param(load(system=use(600, 10), reserved=Resources(cpu_milli=2_000)), (4_000, 45), id="or the reserve"),
        pytest.param(load(pod("a", 20_000, 200)), (0, 0), id="never less than nothing"),
    ],
)
def test_a_share_of_what_nobody_asked_for(node: NodeLoad, expected) -> None:
    assert amounts(node, mid_unallocated_pct=50) == expected


def test_both_parts_add_up_and_are_capped() -> None:
    both = {"reclaimable": (3_000, 30), "node_use": (2_000, 20), "mid_unallocated_pct": 20}

    assert amounts(load(), **both) == (5_000, 50)
    assert amounts(load(), **both, mid_cpu_threshold_pct=40, mid_mem_threshold_pct=45) == (4_000, 45)
    assert [one.bound for one in figured(load(), **both, mid_cpu_threshold_pct=40).because] == ["capped", "formula"]
    assert figured(load(), **both, mid_cpu_threshold_pct=50).because[0].bound == "formula"


def test_static_is_a_share_of_the_capacity_whatever_runs() -> None:
    share = {"mid_reclaim_mode": "static", "mid_static_cpu_reserved_pct": 30, "mid_static_mem_reserved_pct": 40}
    mid = figured(load(pod("a", 9_000, 90)), (5_000, 50), **share, mid_mem_threshold_pct=25)

    assert (mid.cpu_milli, mid.mem_bytes) == (3_000, 25 * GIB)
    assert mid.because[0].terms == {
        "capacity_milli": 10_000, "static_pct": 30, "static_milli": 3_000, "cap_milli": 10_000, "mid_milli": 3_000,
    }  # fmt: skip
    assert amounts(load(), mid_reclaim_mode="other", mid_static_cpu_reserved_pct=30) == (0, 0)


def test_the_terms_are_the_arithmetic_in_its_order() -> None:
    node = load(pod("a", 4_000, 20), system=use(600, 10), reserved=Resources(mem_bytes=15 * GIB))
    cpu, mem = figured(node, (3_000, 30), (8_000, 20), mid_unallocated_pct=50).because

    assert list(cpu.terms.items()) == [
        ("capacity_milli", 10_000), ("reclaimable_milli", 3_000), ("unused_milli", 2_000), ("base_milli", 2_000),
        ("system_or_reserved_milli", 600), ("prod_request_milli", 4_000), ("unallocated_milli", 5_400),
        ("unallocated_pct", 50), ("unallocated_part_milli", 2_700), ("cap_milli", 10_000), ("mid_milli", 4_700),
    ]  # fmt: skip
    assert (mem.of, mem.terms["system_or_reserved_bytes"]) == ("mid_memory_bytes", 15 * GIB)


def test_what_is_not_there_is_nothing_in_the_terms_too() -> None:
    cpu, mem = figured(load(pod("a", 20_000, 200)), (3_000, 30), None, mid_unallocated_pct=50).because

    for because, unit in ((cpu, "milli"), (mem, "bytes")):
        absent = [because.terms[f"{name}_{unit}"] for name in ("unused", "unallocated", "system_or_reserved")]
        assert absent == [0, 0, 0]


def test_a_node_without_amounts_gives_nothing() -> None:
    bare = load(capacity=Resources(), allocatable=Resources())

    assert amounts(bare, (9_000, 9), mid_unallocated_pct=100) == (0, 0)


@given(pods_and_metrics(), uses, uses, st.integers(0, 100), st.integers(0, 100))
def test_never_more_than_the_cap_and_never_less_than_nothing(mixed, reclaimable, node_use, part, cap) -> None:
    strategy = Colocation(mid_unallocated_pct=part, mid_cpu_threshold_pct=cap, mid_mem_threshold_pct=cap)
    mid = mid_resource(load(*mixed[0]), strategy, reclaimable=reclaimable, node_use=node_use)

    assert 0 <= mid.cpu_milli <= int(10_000 * (cap / 100))
    assert 0 <= mid.mem_bytes <= int(100 * GIB * (cap / 100))


@given(pods_and_metrics(), st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(mixed, random) -> None:
    pods, _ = mixed
    strategy = msgspec.structs.replace(Colocation(), mid_unallocated_pct=70)
    one, other = load(*pods), load(*random.sample(pods, len(pods)))

    assert mid_resource(one, strategy, reclaimable=use(500, 5), node_use=use(1, 1)) == mid_resource(
        other, strategy, reclaimable=use(500, 5), node_use=use(1, 1)
    )
