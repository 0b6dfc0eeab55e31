"""The smallest sets of zones, and what needing them scores."""

from itertools import combinations

from hypothesis import given

from slacktide.streams.decisions.numa.policy_admit import covered
from slacktide.streams.decisions.numa.score import Needed, least_numa
from slacktide.streams.decisions.numa.topology import Kubelet, Step, Zone
from testbed.numa_nodes import GPU, REQUESTS, zone, zone_lists


def needed(*requests: dict[str, int], zones: list[Zone], most: int = 8, corrected: bool = False) -> Needed:
    wanted = [Step("app", "a", request) for request in requests]
    return least_numa(wanted, zones, Kubelet(max_zones=most), corrected=corrected)


def apart(*distances: tuple[int, int, int], cpu: int = 4000, ids: tuple[int, ...] = (0, 1, 2)) -> list[Zone]:
    """Zones with 10 to themselves and these distances, both ways, between two."""
    costs = {one: {one: 10} for one in ids}
    for one, other, far in distances:
        costs[one][other] = costs[other][one] = far
    return [zone(one, cpu, costs=costs[one]) for one in ids]


def test_each_zone_costs_a_step_and_the_nearest_gives_half_of_one_back() -> None:
    zones = apart((0, 1, 20), (0, 2, 30), (1, 2, 20))

    assert needed({"cpu": 4000}, zones=zones) == Needed(100 - 12 + 6, 1)
    assert needed({"cpu": 8000}, zones=zones) == Needed(100 - 24 + 6, 2)
    assert needed({"cpu": 12_000}, zones=zones, most=4) == Needed(100 - 75 + 12, 3)
    assert needed({"cpu": 12_001}, zones=zones) == Needed(0)


def test_the_reference_falls_below_0_where_a_pod_needs_more_zones_than_the_kubelet_takes() -> None:
    zones = apart((0, 1, 20), (0, 2, 30), (1, 2, 20))

    asked = [Step("app", "a", {"cpu": 12_000})]

    assert least_numa(asked, zones, Kubelet(max_zones=2)).score == -25
    assert needed({"cpu": 12_000}, zones=zones, most=2, corrected=True).score == 0
    assert needed({"cpu": 4000}, zones=zones, most=101).score == 100
    assert needed({"cpu": 8000}, zones=zones, most=64).score == 98


def test_a_set_that_is_not_the_nearest_gives_nothing_back() -> None:
    zones = apart((0, 1, 30), (0, 2, 20), (1, 2, 30))
    used = [zones[0], zones[1], zones[2]._replace(available={"cpu": 100})]

    assert needed({"cpu": 8000}, zones=used) == Needed(76, 2, all_nearest=False)
    assert needed({"cpu": 4100}, zones=used) == Needed(82, 2)


def test_of_sets_that_fit_the_nearest_is_taken_the_first_of_equals() -> None:
    zones = apart((0, 1, 40), (0, 2, 20), (1, 2, 20), (0, 3, 11), (1, 3, 90), (2, 3, 90), ids=(0, 1, 2, 3))
    used = [*zones[:3], zones[3]._replace(available={"cpu": 0})]

    assert needed({"cpu": 8000}, {"cpu": 4000}, {"cpu": 1}, zones=used) == Needed(0)
    assert needed({"cpu": 8000}, {"cpu": 4000}, zones=used) == Needed(76, 2, all_nearest=False)


def test_one_container_that_is_not_nearest_is_enough_and_the_worst_decides() -> None:
    zones = apart((0, 1, 30), (0, 2, 20), (1, 2, 30))
    used = [*zones[:2], zones[2]._replace(available={"cpu": 1000})]

    assert needed({"cpu": 1000}, {"cpu": 7000}, zones=used) == Needed(76, 2, all_nearest=False)
    assert needed({"cpu": 7000}, {"cpu": 1000}, zones=used) == Needed(76, 2, all_nearest=False)
    assert needed({"cpu": 1000}, {"cpu": 1000}, zones=used) == Needed(94, 1)


def test_a_container_takes_from_the_next() -> None:
    zones = apart((0, 1, 20), ids=(0, 1))

    assert needed({"cpu": 3000}, {"cpu": 3000}, zones=zones) == Needed(94, 1)
    assert needed({"cpu": 3000}, {"cpu": 3000}, {"cpu": 2000}, zones=zones) == Needed(82, 2)
    assert needed({"cpu": 3000}, {"cpu": 3000}, {"cpu": 2001}, zones=zones) == Needed(0)


def test_what_no_zone_lists_needs_none() -> None:
    zones = [zone(0, 4000)]

    assert needed({GPU: 1}, zones=zones) == Needed(100)
    assert needed({"ephemeral-storage": 1}, {"cpu": 1000}, zones=zones) == Needed(94, 1)
    assert needed({}, zones=[]) == Needed(100)


def test_the_reference_wants_every_zone_to_list_every_resource() -> None:
    zones = [zone(0, 4000, gpu=1, costs={0: 10, 1: 20}), zone(1, 4000, costs={0: 20, 1: 10})]

    assert needed({"cpu": 1000, "ephemeral-storage": 1}, zones=zones) == Needed(0)
    assert needed({"cpu": 1000, "ephemeral-storage": 1}, zones=zones, corrected=True) == Needed(94, 1)
    assert needed({"cpu": 8000, GPU: 1}, zones=zones) == Needed(0)
    assert needed({"cpu": 8000, GPU: 1}, zones=zones, corrected=True) == Needed(82, 2)
    assert needed({"cpu": 8000, "memory": 0}, zones=zones) == Needed(0)
    assert needed({"cpu": 8000, "memory": 0}, zones=zones, corrected=True) == Needed(82, 2)


def test_the_reference_takes_distances_above_255_for_no_fit() -> None:
    zones = [zone(0, 4000, costs={0: 256, 1: 256}), zone(1, 4000, costs={0: 256, 1: 256})]
    below = [zone(0, 4000, costs={0: 255})]

    assert needed({"cpu": 1000}, zones=zones) == Needed(0)
    assert needed({"cpu": 1000}, zones=zones, corrected=True) == Needed(94, 1)
    assert needed({"cpu": 1000}, zones=below) == Needed(94, 1)
    assert needed({"cpu": 1000}, zones=[zone(0, 4000)]) == Needed(94, 1)
    assert needed({"cpu": 8000}, zones=[zone(0, 4000, costs={0: 300}), zone(1, 4000)]) == Needed(0)


def test_between_255_and_256_on_average_a_set_fits_and_is_not_nearest() -> None:
    """The nearest is reckoned as 255 at most."""
    zones = [zone(0, 4000, costs={0: 256, 1: 255}), zone(1, 4000, costs={0: 255, 1: 255})]

    assert needed({"cpu": 8000}, zones=zones) == Needed(76, 2, all_nearest=False)
    assert needed({"cpu": 8000}, zones=zones, corrected=True) == Needed(82, 2)


def test_the_reference_takes_an_id_for_a_place() -> None:
    """Each container goes to zone 1, which is listed first; zone 0, the second place, is charged."""
    zones = apart((0, 1, 20), ids=(1, 0))

    assert needed({"cpu": 4000}, {"cpu": 4000}, {"cpu": 4000}, zones=zones) == Needed(94, 1)
    assert needed({"cpu": 4000}, {"cpu": 4000}, {"cpu": 4000}, zones=zones, corrected=True) == Needed(0)
    assert needed({"cpu": 4000}, {"cpu": 4000}, zones=zones, corrected=True) == Needed(94, 1)


def test_an_id_beyond_the_list_is_no_place() -> None:
    zones = apart((5, 7, 20), ids=(5, 7))

    assert needed({"cpu": 4000}, {"cpu": 4000}, {"cpu": 1}, zones=zones) == Needed(0)
    assert needed({"cpu": 4000}, {"cpu": 4000}, zones=zones) == Needed(94, 1)


def test_the_zones_given_stay_as_they_are() -> None:
    zones = [zone(0, 4000)]
    needed({"cpu": 1000}, zones=zones)

    assert zones == [zone(0, 4000)]


@given(REQUESTS, zone_lists(smallest=1))
def test_corrected_no_smaller_set_would_do(request: dict[str, int], zones: list[Zone]) -> None:
    listed = {name for one in zones for name in one.available}
    wanted = {name: amount for name, amount in request.items() if name in listed}
    sizes = range(1, len(zones) + 1)
    fitting = [
        size
        for size in sizes
        if any(covered(wanted, [one.available for one in chosen]) for chosen in combinations(zones, size))
    ]
    answer = needed(request, zones=zones, corrected=True)

    assert 0 <= answer.score <= 100
    if not wanted:
        assert answer == Needed(100)
    else:
        assert answer.zone_count == min(fitting, default=0)


@given(REQUESTS, zone_lists())
def test_corrected_the_order_of_zones_decides_nothing_for_one_request(
    request: dict[str, int], zones: list[Zone]
) -> None:
    assert needed(request, zones=zones, corrected=True) == needed(request, zones=zones[::-1], corrected=True)
