"""Zones after a request was taken from them."""

from hypothesis import given

from slacktide.streams.decisions.numa.topology import Zone, charged, places_of
from testbed.numa_nodes import GPU, REQUESTS, zone, zone_lists


def free(zones: list[Zone]) -> list[dict[str, int]]:
    return [dict(one.available) for one in zones]


def test_each_zone_gives_what_it_has_in_the_order_of_places() -> None:
    zones = [zone(0, 1000), zone(1, 2000, gpu=1), zone(2, 4000)]

    assert free(charged({"cpu": 5000, GPU: 1}, zones, [2, 1])) == [{"cpu": 1000}, {"cpu": 1000, GPU: 0}, {"cpu": 0}]
    assert free(zones) == [{"cpu": 1000}, {"cpu": 2000, GPU: 1}, {"cpu": 4000}]


def test_places_are_by_id_and_an_id_that_no_zone_has_is_left_out() -> None:
    assert places_of([7, 5, 0, 2], [zone(5), zone(7), zone(2)]) == [2, 0, 1]


@given(REQUESTS, zone_lists())
def test_what_is_taken_is_the_request_or_all_there_was(request: dict[str, int], zones: list[Zone]) -> None:
    after = charged(request, zones, range(len(zones)))
    for name in {"cpu", "memory", GPU}:
        before = sum(one.available.get(name, 0) for one in zones)
        assert before - sum(one.available.get(name, 0) for one in after) == min(request.get(name, 0), before)
    assert all(amount >= 0 for one in after for amount in one.available.values())
    assert [one.id for one in after] == [one.id for one in zones]
    assert [one.available.keys() for one in after] == [one.available.keys() for one in zones]
