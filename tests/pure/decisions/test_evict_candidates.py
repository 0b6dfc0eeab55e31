"""Who may be evicted, and in which order."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

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


@every_way
def test_a_borrowed_pod_goes_before_free_pods_and_whatever_its_priority_and_annotations(candidates: Callable) -> None:
    def made(name: str, used: int, *, kept: bool = False, **fields: object) -> EvictPod:
        one = be(name, used=used, kept=kept)
        return replace(one, pod=structs.replace(one.pod, **fields))

    pods = [
        made("free", 9, priority=3_000),
        made("low", 9, priority=5_000, eviction_priority=-9),
        made("borrowed", 1, priority=5_999, borrowed=True, eviction_priority=9, eviction_features=[]),
        made("failed", 9, kept=True, borrowed=True),
    ]
    order = Order(dying_first=True, free_first=True, classes_first=True, sub_priority=True)

    assert names(candidates(pods, feature="F", order=order)) == ["borrowed", "free", "low", "failed"]
    assert names(candidates(pods, feature="F", order=Order()))[0] == "borrowed"


@every_way
@given(pods=any_pods("F"), order=orders)
def test_who_borrowed_goes_first_and_the_order_within_stays(
    candidates: Callable, pods: list[EvictPod], order: Order
) -> None:
    marked = [replace(one, pod=structs.replace(one.pod, borrowed=at % 3 == 0)) for at, one in enumerate(pods)]
    chosen = candidates(marked, feature="F", order=order)
    first = [one.pod.borrowed for one in chosen if not one.kept]
    alone = candidates([one for one in marked if not one.pod.borrowed], feature="F", order=order)

    assert first == sorted(first, reverse=True)
    assert tuple(one for one in chosen if not one.pod.borrowed) == alone
