"""What of a node's batch resources each of its zones gives."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.zones import Zone, ZoneResources
from slacktide.streams.decisions.resources.batch_resource import batch_zones


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
