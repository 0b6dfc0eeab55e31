"""How full or evenly filled zones would be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.score import Allocation, request_score
from slacktide.streams.decisions.numa.topology import Zone
from testbed.numa_nodes import GPU, REQUESTS, as_read, zone, zone_lists

ALLOCATIONS = st.sampled_from(["LeastAllocated", "MostAllocated", "BalancedAllocation"])


def least(request: dict[str, int], *zones: Zone, corrected: bool = False, **weights: int) -> int:
    return request_score(request, zones, "LeastAllocated", weights, corrected=corrected)


def most(request: dict[str, int], *zones: Zone, corrected: bool = False, **weights: int) -> int:
    return request_score(request, zones, "MostAllocated", weights, corrected=corrected)


def balanced(request: dict[str, int], *zones: Zone, corrected: bool = False) -> int:
    return request_score(request, zones, "BalancedAllocation", {}, corrected=corrected)


def test_the_reference_rounds_cpu_up_to_cores() -> None:
    assert (least({"cpu": 200}, zone(0, 500)), most({"cpu": 200}, zone(0, 500))) == (0, 100)
    assert (least({"cpu": 1500}, zone(0, 2500)), most({"cpu": 1001}, zone(0, 3000))) == (33, 66)
    assert balanced({"cpu": 200, "memory": 0}, zone(0, 500, memory=5)) == 50


def test_corrected_a_fifth_of_a_core_on_half_a_core_leaves_three_fifths() -> None:
    assert least({"cpu": 200}, zone(0, 500), corrected=True) == 60
    assert most({"cpu": 200}, zone(0, 500), corrected=True) == 40
    assert most({"cpu": 1}, zone(0, 3), corrected=True) == 33
    assert request_score({"cpu": 200}, [zone(0, 500)], "MostAllocated", {}) == 100
    assert balanced({"cpu": 200, "memory": 2}, zone(0, 500, memory=5), corrected=True) == 100


def test_memory_is_not_rounded() -> None:
    assert least({"memory": 1500}, zone(0, memory=2000)) == 25
    assert least({"attachable": 1500}, zone(0, attachable=2000)) == 25
    assert least({as_read("cpu"): 1500}, zone(0, 4000)) == 50


def test_each_score_is_rounded_down_before_the_mean() -> None:
    assert least({"cpu": 1000, "memory": 2}, zone(0, 3000, memory=3)) == (66 + 33) // 2


def test_what_does_not_fit_or_is_not_there_scores_0_for_its_resource() -> None:
    assert least({"cpu": 1000, "memory": 1}, zone(0, 4000)) == 37
    assert least({"cpu": 2000, "memory": 9}, zone(0, 4000, memory=8)) == 25
    assert least({"cpu": 1999}, zone(0, 1998)) == 0
    assert most({"cpu": 1999}, zone(0, 1999)) == 100
    assert least({"cpu": 0}, zone(0, 0)) == 0
    assert most({"cpu": 1000, "memory": 1}, zone(0, 4000)) == 12


def test_a_resource_of_amount_0_counts() -> None:
    assert least({"cpu": 2000, "memory": 0}, zone(0, 4000, memory=8)) == 75
    assert most({"cpu": 2000, "memory": 0}, zone(0, 4000, memory=8)) == 25


def test_weights_below_1_or_missing_count_as_1() -> None:
    request, one = {"cpu": 1000, "memory": 8}, zone(0, 4000, memory=8)

    assert least(request, one) == 37
    assert least(request, one, cpu=3) == 56
    assert least(request, one, cpu=0, memory=-4) == 37
    assert least(request, one, memory=2) == 25


def test_the_worst_zone_that_scores_at_all_decides() -> None:
    assert least({"cpu": 2000}, zone(0, 4000), zone(1, 1000), zone(2, 8000)) == 50
    assert least({"cpu": 2000}, zone(0, 1000)) == 0
    assert least({"cpu": 2000}) == 0
    assert least({}, zone(0, 1000)) == 0


def test_balance_is_100_less_the_sample_variance() -> None:
    assert balanced({"cpu": 2000, "memory": 4}, zone(0, 4000, memory=8)) == 100
    assert balanced({"cpu": 4000, "memory": 0}, zone(0, 4000, memory=8)) == 50
    assert balanced({"cpu": 4000, "memory": 4, GPU: 0}, zone(0, 4000, memory=8, gpu=4)) == 75


@pytest.mark.parametrize(
    ("of", "used", "score"),
    [(20, (3, 15), 82), (10, (9, 1, 5), 84), (40, (11, 23, 35), 91), (5, (4, 1, 4), 88)],
)
def test_the_order_of_the_arithmetic_decides_the_last_digit(of: int, used: tuple[int, ...], score: int) -> None:
    names = (GPU, "hugepages-2Mi", "memory")
    request = dict(zip(names, used, strict=False))

    assert balanced(request, Zone(0, dict.fromkeys(request, of))) == score


def test_balance_without_room_is_0_and_a_resource_that_is_not_there_is_full() -> None:
    assert balanced({"cpu": 5000, "memory": 1}, zone(0, 4000, memory=8)) == 0
    assert balanced({"cpu": 0, "memory": 1}, zone(0, 4000)) == 50
    assert balanced({"cpu": 0, "memory": 0}, zone(0, 4000)) == 50
    assert balanced({"cpu": 4000, "memory": 8}, zone(0, 4000, memory=8)) == 100


@pytest.mark.parametrize("corrected", [False, True])
def test_a_single_resource_does_not_vary(corrected: bool) -> None:  # noqa: FBT001
    assert balanced({"cpu": 2000}, zone(0, 4000), corrected=corrected) == 100
    assert balanced({}, zone(0, 4000), corrected=corrected) == 100


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
        both = [score({"cpu": asked}, zone(0, free), corrected=True) for score in (least, most)]
        assert sum(both) in {99, 100}
