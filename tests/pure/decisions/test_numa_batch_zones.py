"""What of a node's batch resources each of its zones gives."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.zones import Zone, ZoneResources
from slacktide.streams.decisions.numa.batch_zones import Share, ZoneBatch, batch_zones

GIB = 2**30


def zone(number: int, cpu: tuple[int, int] | None, mem: tuple[int, int] | None = None) -> Zone:
    """Each resource as allocatable and available; None: the zone has none of it."""
    (cpu_milli, cpu_left), (mem_bytes, mem_left) = cpu or (None, None), mem or (None, None)
    return Zone(
        id=number,
        allocatable=ZoneResources(cpu_milli=cpu_milli, mem_bytes=mem_bytes),
        available=ZoneResources(cpu_milli=cpu_left, mem_bytes=mem_left),
    )


def cpus(node: int | None, *zones: tuple[int, int] | None) -> list[int | None]:
    """Millicores by zone, whose ids have gaps."""
    found = batch_zones(node, None, [zone(3 * number, one) for number, one in enumerate(zones)])
    assert all(one.mem_bytes is None for one in found)
    return [one.cpu_milli and one.cpu_milli.amount for one in found]


@pytest.mark.parametrize(
    ("node", "zones", "expected"),
    [
        pytest.param(6_000, [(8_000, 8_000), (8_000, 8_000)], [3_000, 3_000], id="like zones: like parts"),
        pytest.param(6_000, [(8_000, 8_000), (16_000, 16_000)], [2_000, 4_000], id="in proportion"),
        pytest.param(6_000, [(8_000, 2_000), (8_000, 8_000)], [1_200, 4_800], id="by what no pod holds"),
        pytest.param(6_000, [(8_000, 0), (8_000, 8_000)], [0, 6_000], id="a zone that pods hold gives nothing"),
        pytest.param(12_000, [(8_000, 2_000), (8_000, 6_000)], [5_000, 7_000], id="what is above it: by what is held"),
        pytest.param(14_000, [(8_000, 0), (6_000, 6_000)], [8_000, 6_000], id="all there is"),
        pytest.param(20_000, [(8_000, 2_000), (6_000, 6_000)], [8_000, 6_000], id="never more than there is"),
        pytest.param(100, [(1, 1), (1, 1), (1, 1)], [1, 1, 1], id="nor by rounding"),
        pytest.param(100, [(500, 500), (500, 500), (500, 500)], [33, 33, 34], id="the rest goes to the later zones"),
        pytest.param(1, [(8_000, 8_000), (8_000, 8_000)], [0, 1], id="one millicore is in one zone"),
        pytest.param(0, [(8_000, 8_000), (8_000, 8_000)], [0, 0], id="nothing is divided"),
        pytest.param(6_000, [(8_000, 8_000), None], [6_000, None], id="a zone without CPUs"),
        pytest.param(6_000, [(8_000, 8_000), (0, 0)], [6_000, 0], id="a zone whose CPUs are reserved"),
        pytest.param(6_000, [(0, 0), (0, 0)], [0, 0], id="only such zones"),
        pytest.param(6_000, [None, None], [None, None], id="no zone with CPUs"),
        pytest.param(None, [(8_000, 8_000), (8_000, 8_000)], [None, None], id="a node without batch CPU"),
        pytest.param(6_000, [(4_000, 9_000), (8_000, 8_000)], [2_000, 4_000], id="no more is free than there is"),
        pytest.param(6_000, [], [], id="no zones"),
    ],
)
def test_the_nodes_amount_is_divided_by_what_zones_have_free(
    node: int | None, zones: list[tuple[int, int] | None], expected: list[int | None]
) -> None:
    assert cpus(node, *zones) == expected


def test_memory_is_divided_by_itself_and_a_zone_may_have_memory_alone() -> None:
    zones = [zone(0, (8_000, 2_000), (16 * GIB, 16 * GIB)), zone(4, None, (48 * GIB, 48 * GIB))]

    (first, second) = batch_zones(1_000, 32 * GIB, zones)

    assert first == ZoneBatch(Share(1_000, 2_000, 6_000, 1_000, 0), Share(32 * GIB, 16 * GIB, 0, 8 * GIB, 0))
    assert second == ZoneBatch(None, Share(32 * GIB, 48 * GIB, 0, 24 * GIB, 0))
    assert batch_zones(None, None, zones) == [ZoneBatch(None, None)] * 2


def test_a_zone_of_which_nothing_is_free_has_held_amounts_alone_and_one_without_cpus_no_free_ones() -> None:
    found = batch_zones(9, None, [zone(0, (8, 0)), zone(1, (0, 5)), zone(2, (4, 4))])

    assert [one.cpu_milli for one in found] == [Share(9, 0, 8, 0, 5), Share(9, 0, 0, 0, 0), Share(9, 4, 0, 4, 0)]


@pytest.mark.parametrize(("node", "bound"), [(9_000, "held"), (1_000, "free"), (0, "exhausted")])
def test_a_part_shows_its_arithmetic(node: int, bound: str) -> None:
    [one] = batch_zones(node, None, [zone(0, (12_000, 4_000))])
    assert one.cpu_milli is not None
    because = one.cpu_milli.because("zones/0/batch_cpu_milli", "milli")

    assert (because.of, because.bound) == ("zones/0/batch_cpu_milli", bound)
    assert because.terms == {
        "node_milli": node, "free_milli": 4_000, "held_milli": 8_000,
        "of_free_milli": min(node, 4_000), "of_held_milli": max(0, node - 4_000), "batch_milli": node,
    }  # fmt: skip
    assert because.added() == because.terms["batch_milli"]


def test_a_case_names_each_zone_by_its_id_with_what_it_has() -> None:
    zones = [
        {"id": 0, "allocatable": {"cpu_milli": 8_000, "memory_bytes": 50}, "available": {"cpu_milli": 2_000}},
        {"id": 3, "allocatable": {"cpu_milli": 8_000}, "available": {"cpu_milli": 8_000}},
    ]
    case = {"name": "a", "input": {"batch_cpu_milli": 6_000, "batch_memory_bytes": 40, "zones": zones}}
    answered = Calculation("numa_batch_zones", explain=True).answer(json.dumps(case))

    assert answered.calculated is not None
    assert answered.calculated.output == {
        "zones": [
            {"id": 0, "batch_cpu_milli": 1_200, "batch_memory_bytes": 40},
            {"id": 3, "batch_cpu_milli": 4_800},
        ]
    }
    assert [(one.of, one.bound) for one in answered.calculated.because] == [
        ("zones/0/batch_cpu_milli", "free"), ("zones/0/batch_memory_bytes", "held"), ("zones/3/batch_cpu_milli", "free")
    ]  # fmt: skip


@st.composite
def rooms(draw: st.DrawFn) -> tuple[int, int] | None:
    """Allocatable and available of a zone; None: it has none of it."""
    allocatable = draw(st.none() | st.integers(0, 10) | st.integers(0, 2**40))
    return None if allocatable is None else (allocatable, draw(st.integers(0, allocatable)))


AMOUNTS = st.integers(0, 12) | st.integers(0, 2**42)
ROOMS = st.lists(rooms(), max_size=8)


@given(AMOUNTS, ROOMS)
def test_parts_add_up_to_the_node_and_no_zone_gives_more_than_it_has(
    node: int, zones: list[tuple[int, int] | None]
) -> None:
    found = cpus(node, *zones)

    assert [one is None for one in found] == [one is None for one in zones]
    assert sum(one or 0 for one in found) == min(node, sum(one[0] for one in zones if one))
    assert all(0 <= (part or 0) <= one[0] for part, one in zip(found, zones, strict=True) if one)


@given(AMOUNTS, ROOMS)
def test_a_part_is_within_one_unit_of_the_exact_one_and_held_amounts_come_last(
    node: int, zones: list[tuple[int, int] | None]
) -> None:
    shares = [one.cpu_milli for one in batch_zones(node, None, [zone(0, one) for one in zones]) if one.cpu_milli]
    free, held = sum(one.free for one in shares), sum(one.held for one in shares)

    for one in shares:
        assert abs(one.of_free - Fraction(one.free * min(node, free), free or 1)) < 1
        assert abs(one.of_held - Fraction(one.held * min(max(0, node - free), held), held or 1)) < 1
        assert 0 <= one.of_free <= one.free
        assert 0 <= one.of_held <= one.held
    assert node >= free or not any(one.of_held for one in shares)


@given(AMOUNTS, ROOMS)
def test_zones_that_give_nothing_change_no_other_part(node: int, zones: list[tuple[int, int] | None]) -> None:
    between = [one for zone in zones for one in (zone, None, (0, 0))]

    assert cpus(node, *between)[::3] == cpus(node, *zones)


@given(AMOUNTS, ROOMS, ROOMS)
def test_cpu_and_memory_do_not_depend_on_each_other(
    node: int, cpu: list[tuple[int, int] | None], mem: list[tuple[int, int] | None]
) -> None:
    zones = [zone(number, *both) for number, both in enumerate(zip(cpu, mem, strict=False))]
    both = batch_zones(node, node, zones)

    assert [one.cpu_milli for one in both] == [one.cpu_milli for one in batch_zones(node, None, zones)]
    assert [one.mem_bytes for one in both] == [one.mem_bytes for one in batch_zones(None, node, zones)]
