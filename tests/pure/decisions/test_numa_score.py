"""Laws of what zones score for a pod: how full or even they would be, and how many it needs."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.filter import Node, covered
from slacktide.streams.decisions.numa.score import (
    STRATEGIES,
    Allocation,
    Needed,
    Strategy,
    least_numa,
    numa_score,
    request_score,
)
from slacktide.streams.decisions.numa.topology import Container, Kubelet, Pod, Step, Zone
from testbed.numa_nodes import REQUESTS, nodes, pods, zone, zone_lists

ALLOCATIONS = st.sampled_from(["LeastAllocated", "MostAllocated", "BalancedAllocation"])


@given(pods(), nodes(), st.sampled_from(STRATEGIES))
def test_corrected_scores_are_0_to_100(one: Pod, node: Node, strategy: Strategy) -> None:
    assert 0 <= numa_score(one, node.kubelet, node.zones, strategy, {}, corrected=True).score <= 100


@given(request=REQUESTS, zones=zone_lists(), strategy=ALLOCATIONS, corrected=st.booleans())
def test_scores_are_0_to_100_and_the_order_of_zones_decides_nothing(
    request: dict[str, int], zones: list[Zone], strategy: Allocation, *, corrected: bool
) -> None:
    score = request_score(request, zones, strategy, {}, corrected=corrected)

    assert 0 <= score <= 100
    assert score == request_score(request, zones[::-1], strategy, {}, corrected=corrected)


@given(st.integers(1, 8000), st.integers(1, 8000))
def test_what_is_used_and_what_stays_free_are_100_together(asked: int, free: int) -> None:
    if asked <= free:
        both = ("LeastAllocated", "MostAllocated")
        assert sum(request_score({"cpu": asked}, [zone(0, free)], one, {}, corrected=True) for one in both) in {99, 100}


def test_without_being_asked_for_scores_are_the_references() -> None:
    assert request_score({"cpu": 200}, [zone(0, 500)], "MostAllocated", {}) == 100
    assert least_numa([Step("app", "a", {"cpu": 2})], [zone(0, 1), zone(1, 1)], Kubelet(max_zones=1)).score == -50
    single = Kubelet(policy="single-numa-node")
    alone = Pod(qos="Guaranteed", containers=[Container(name="a", requests={"cpu": 200})])
    assert numa_score(alone, single, [zone(0, 500)], "LeastAllocated", {}).score == 0


def needed(request: dict[str, int], zones: list[Zone]) -> Needed:
    return least_numa([Step("app", "a", request)], zones, Kubelet(), corrected=True)


def test_the_zones_given_stay_as_they_are() -> None:
    zones = [zone(0, 4000)]
    needed({"cpu": 1000}, zones)

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
    answer = needed(request, zones)

    assert 0 <= answer.score <= 100
    if not wanted:
        assert answer == Needed(100)
    else:
        assert answer.zone_count == min(fitting, default=0)


@given(REQUESTS, zone_lists())
def test_corrected_the_order_of_zones_decides_nothing_for_one_request(
    request: dict[str, int], zones: list[Zone]
) -> None:
    assert needed(request, zones) == needed(request, zones[::-1])
