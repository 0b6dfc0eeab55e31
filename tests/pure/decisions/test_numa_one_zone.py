"""One zone for a whole request, and every reason why there is none."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.filter import Found, Lack, lack_of, one_zone
from slacktide.streams.decisions.numa.topology import Zone
from testbed.numa_nodes import BATCH_CPU, GPU, ON_NODE, REQUESTS, zone, zone_lists


def found(request: dict[str, int], *zones: Zone, guaranteed: bool = True, **more: object) -> Found:
    return one_zone(request, zones, ON_NODE, guaranteed=guaranteed, **more)


def lacks(request: dict[str, int], *zones: Zone, **more: object) -> list[Lack]:
    return list(found(request, *zones, **more).lacks)


def test_the_lowest_id_that_holds_all_is_taken_not_the_first_listed() -> None:
    assert found({"cpu": 2000}, zone(3, 4000), zone(1, 4000), zone(0, 1000)) == Found(1)


def test_what_narrows_nothing_gets_zone_0_even_where_there_is_none() -> None:
    assert found({"cpu": 0, GPU: 1}, zone(2, 4000)) == Found(0)
    assert found({}) == Found(0)
    assert Found().zone == 0


def test_exactly_enough_is_enough_and_one_less_is_not() -> None:
    assert found({"cpu": 4000}, zone(1, 4000)).zone == 1
    assert lacks({"cpu": 4000}, zone(1, 3999)) == [Lack("cpu", "no_zone", 4000, 1, 3999)]


def test_a_device_that_no_zone_lists_needs_no_zone_and_cpu_does() -> None:
    assert lacks({"cpu": 1000, GPU: 1, "ephemeral-storage": 5}, zone(0, 2000)) == []
    assert lacks({"cpu": 1000}, zone(0, memory=5)) == [Lack("cpu", "no_zone", 1000)]


def test_batch_cpu_needs_a_zone_unless_it_may_lie_anywhere() -> None:
    assert lacks({BATCH_CPU: 1}, zone(0, 2000)) == [Lack(BATCH_CPU, "no_zone", 1)]
    assert found({BATCH_CPU: 1}, zone(0, 2000), anywhere=[BATCH_CPU]) == Found(0)
    assert lacks({BATCH_CPU: 3}, zone(0, batch=2), anywhere=[BATCH_CPU])


def test_without_guarantee_a_zone_only_has_to_list_cpu_and_memory() -> None:
    assert found({"cpu": 9000, "memory": 9}, zone(0), zone(1, 1, memory=1), guaranteed=False).zone == 1
    assert lacks({"cpu": 1}, zone(0), guaranteed=False) == [Lack("cpu", "no_zone", 1)]
    assert lacks({GPU: 2}, zone(0, gpu=1), guaranteed=False) == [Lack(GPU, "no_zone", 2, 0, 1)]


def test_what_the_node_lacks_is_told_apart_and_cpu_is_always_there() -> None:
    assert one_zone({"cpu": 1, GPU: 1}, [zone(0, 1)], {}, guaranteed=True).lacks == (Lack(GPU, "not_on_node", 1),)
    assert one_zone({"cpu": 1, GPU: 0}, [zone(0, 1)], {}, guaranteed=True) == Found(0)


def test_every_failing_resource_is_named_by_name_with_its_best_zone() -> None:
    assert lacks({GPU: 3, "cpu": 9000, "memory": 1}, zone(0, 2000, memory=1, gpu=1), zone(1, 4000, gpu=2)) == [
        Lack("cpu", "no_zone", 9000, 1, 4000),
        Lack(GPU, "no_zone", 3, 1, 2),
    ]


def test_resources_on_different_zones_fail_at_the_one_that_leaves_none() -> None:
    zones = zone(0, 4000, memory=1, gpu=0), zone(1, 1000, memory=9, gpu=2)

    assert lacks({"cpu": 4000, "memory": 9, GPU: 1}, *zones) == [Lack(GPU, "no_zone", 1, 1, 2)]


def test_of_zones_with_the_same_amount_the_lowest_id_is_best() -> None:
    assert lack_of("cpu", 9, [zone(5, 2), zone(2, 2), zone(3, 1)], "no_zone") == Lack("cpu", "no_zone", 9, 2, 2)


@given(request=REQUESTS, zones=zone_lists(), guaranteed=st.booleans())
def test_the_order_of_zones_decides_nothing(request: dict[str, int], zones: list[Zone], *, guaranteed: bool) -> None:
    assert found(request, *zones, guaranteed=guaranteed) == found(request, *reversed(zones), guaranteed=guaranteed)


@given(REQUESTS, zone_lists(smallest=1))
def test_a_zone_is_found_where_one_holds_all_that_zones_list(request: dict[str, int], zones: list[Zone]) -> None:
    listed = {name for one in zones for name in one.available} | {"cpu", "memory"}
    needed = {name: amount for name, amount in request.items() if amount and name in listed}
    holding = [one.id for one in zones if all(one.available.get(name, -1) >= needed[name] for name in needed)]
    answer = found(request, *zones)

    assert (not answer.lacks) == bool(holding)
    if holding and needed:
        assert answer.zone == min(holding)


@given(REQUESTS, zone_lists(smallest=1))
def test_more_room_never_takes_a_zone_away(request: dict[str, int], zones: list[Zone]) -> None:
    if not found(request, *zones).lacks:
        roomier = [one._replace(available={name: of + 1 for name, of in one.available.items()}) for one in zones]
        assert not found(request, *roomier).lacks
