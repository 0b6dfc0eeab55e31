"""Who may be evicted, and in which order."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.evict.evict_tasks import (
    EvictPod,
    Order,
    best_effort_by_memory,
    best_effort_by_ratio,
    by_priority,
)
from testbed.evict_cases import any_pods, be, distinct, names

by_request = partial(by_priority, priority_max=9999, amount=lambda pod: pod.pod.requests.cpu_milli or 0)
every_way = pytest.mark.parametrize(
    "candidates",
    [best_effort_by_memory, best_effort_by_ratio, by_request],
    ids=["by memory", "by ratio", "by priority"],
)
orders = st.builds(Order, free_first=st.booleans(), sub_priority=st.booleans())


@every_way
def test_who_is_spared_is_no_candidate_whatever_it_says_itself(candidates: Callable) -> None:
    pods = [be("a", used=1, spared=True), be("b", used=1)]

    assert names(candidates(pods, feature="F", order=Order())) == ["b"]


@every_way
@given(data=st.data(), pods=any_pods("F", "G"), order=orders)
def test_where_nothing_ties_the_order_of_the_pods_does_not_matter(
    candidates: Callable, data: st.DataObject, pods: list[EvictPod], order: Order
) -> None:
    pods = distinct(pods)
    shuffled = data.draw(st.permutations(pods))

    assert candidates(shuffled, feature="F", order=order) == candidates(pods, feature="F", order=order)


@every_way
@given(pods=any_pods("F", "G"), order=orders)
def test_switches_order_candidates_and_choose_none(candidates: Callable, pods: list[EvictPod], order: Order) -> None:
    plain = candidates(pods, feature="F", order=Order())

    assert set(candidates(pods, feature="F", order=order)) == set(plain)
