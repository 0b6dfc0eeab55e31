"""Who may be evicted, and in which order."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.streams.decisions.evict.evict_candidates import (
    Candidates,
    EvictPod,
    Order,
    best_effort_by_memory,
    best_effort_by_ratio,
    by_priority,
)
from testbed.evict_cases import any_pods, be, distinct, names

PLAIN = Order()
orders = st.builds(Order, free_first=st.booleans(), sub_priority=st.booleans())


def by_memory(*pods: EvictPod, order: Order = PLAIN) -> Candidates:
    return best_effort_by_memory(pods, feature="F", order=order)


def by_ratio(*pods: EvictPod, order: Order = PLAIN) -> Candidates:
    return best_effort_by_ratio(pods, feature="F", order=order)


def up_to(priority_max: int, *pods: EvictPod, order: Order = PLAIN) -> Candidates:
    return by_priority(
        pods, feature="F", priority_max=priority_max, amount=lambda pod: pod.pod.requests.cpu_milli or 0, order=order
    )


def seen(name: str, **more: object) -> EvictPod:
    """With a metric, which says nothing here."""
    return be(name, used=1, **more)


def every_priority(*pods: EvictPod, order: Order = PLAIN) -> Candidates:
    return up_to(9999, *pods, order=order)


EVERY_WAY = [
    pytest.param(by_memory, id="by memory"),
    pytest.param(by_ratio, id="by ratio"),
    pytest.param(every_priority, id="by priority"),
]
BEST_EFFORT = EVERY_WAY[:2]


@pytest.mark.parametrize("candidates", EVERY_WAY)
@pytest.mark.parametrize(
    ("phase", "may_go"),
    [("Running", True), ("Pending", True), ("Failed", False), ("Succeeded", False), ("Unknown", False)],
)
def test_only_what_runs_or_waits_to_run_is_evicted(candidates: Callable, phase: str, *, may_go: bool) -> None:
    assert bool(candidates(be("a", phase=phase, used=1))) == may_go


@pytest.mark.parametrize("candidates", EVERY_WAY)
@pytest.mark.parametrize(
    ("allowed", "may_go"),
    [
        pytest.param(None, True, id="no list allows every feature"),
        pytest.param(["F"], True, id="listed"),
        pytest.param(["G", "F"], True, id="listed among others"),
        pytest.param(["G"], False, id="others listed"),
        pytest.param([], False, id="an empty list allows none"),
    ],
)
def test_a_pod_may_say_which_features_evict_it(candidates: Callable, allowed: list | None, *, may_go: bool) -> None:
    assert bool(candidates(be("a", eviction_features=allowed, used=1))) == may_go


@pytest.mark.parametrize("candidates", EVERY_WAY)
def test_who_is_spared_is_no_candidate_whatever_it_says_itself(candidates: Callable) -> None:
    assert names(candidates(be("a", used=1, spared=True), be("b", used=1))) == ["b"]


@pytest.mark.parametrize("candidates", BEST_EFFORT)
@pytest.mark.parametrize(
    ("qos", "may_go"), [("BE", True), ("LS", False), ("LSR", False), ("SYSTEM", False), ("weird", False), (None, False)]
)
def test_best_effort_features_go_by_the_label_alone(candidates: Callable, qos: str | None, *, may_go: bool) -> None:
    """Each pod here is BestEffort to Kubernetes and of a batch priority."""
    assert bool(candidates(be("a", qos=qos, eviction_enabled=False))) == may_go


@pytest.mark.parametrize(
    ("more", "may_go"),
    [
        pytest.param({}, True, id="below the highest priority"),
        pytest.param({"priority": 6000}, True, id="at the highest priority"),
        pytest.param({"priority": 6001}, False, id="above it"),
        pytest.param({"priority": None, "qos": "LS"}, False, id="no priority counts as the class's own, prod"),
        pytest.param({"priority": 0, "qos": "BE"}, True, id="0 counts as the class's own, batch"),
        pytest.param({"priority": 0, "band": "koord-mid"}, False, id="0 counts as the class's own, mid"),
        pytest.param({"qos": "LS"}, True, id="whatever the QoS"),
        pytest.param({"eviction_enabled": False}, False, id="it does not allow eviction"),
        pytest.param({"used": None}, False, id="no metric"),
        pytest.param({"used": 0}, True, id="a metric of nothing"),
    ],
)
def test_who_goes_by_priority(more: dict, *, may_go: bool) -> None:
    assert bool(up_to(6000, be("a", **{"used": 1} | more))) == may_go


@pytest.mark.parametrize(
    ("pods", "order"),
    [
        pytest.param([be("b", priority=5501, used=9), be("a", used=1)], "ab", id="lower priority first"),
        pytest.param([be("b", priority=100), be("a", priority=None)], "ab", id="no priority is 0, not a default"),
        pytest.param(
            [be("c", priority=1, used=9), be("b", priority=None, used=8), be("a", priority=-1)], "abc", id="0 exactly"
        ),
        pytest.param([be("b", used=1), be("a", used=2)], "ab", id="then more memory"),
        pytest.param([be("b"), be("a", used=1)], "ab", id="unknown use last"),
        pytest.param([be("b", used=0), be("a", used=1)], "ab", id="no use last"),
        pytest.param([be("y"), be("z"), be("x", used=0)], "zyx", id="those by name descending"),
        pytest.param([be("b", used=2), be("a", used=2), be("c", used=2)], "bac", id="equal use keeps the pods' order"),
        pytest.param([be("b", sub_priority=1), be("a", used=2)], "ab", id="sub-priorities do not count unless asked"),
    ],
)
def test_the_order_by_memory(pods: list[EvictPod], order: str) -> None:
    assert names(by_memory(*pods)) == list(order)


@pytest.mark.parametrize(
    ("pods", "order"),
    [
        pytest.param([be("b", priority=5501, used=9, batch_cpu=1), be("a")], "ab", id="lower priority first"),
        pytest.param([be("b", priority=100), be("a", priority=None)], "ab", id="no priority is 0, not a default"),
        pytest.param(
            [be("b", used=50, batch_cpu=100), be("a", used=20, batch_cpu=20)], "ab", id="then a larger share of it used"
        ),
        pytest.param([be("b", used=50, cpu=10), be("a", used=1, batch_cpu=20)], "ab", id="no batch request: no share"),
        pytest.param([be("b", batch_cpu=10), be("a", used=1, batch_cpu=20)], "ab", id="no metric: no share"),
        pytest.param([be("b", used=5), be("a"), be("c")], "bac", id="equal shares keep the pods' order"),
        pytest.param(
            [be("c", batch_cpu=5), be("a", used=5), be("b", batch_cpu=10)], "cab", id="no share is no share, why ever"
        ),
    ],
)
def test_the_order_by_share_of_the_request(pods: list[EvictPod], order: str) -> None:
    assert names(by_ratio(*pods)) == list(order)


@pytest.mark.parametrize(
    ("pods", "order"),
    [
        pytest.param(
            [seen("b", priority=100), seen("a", eviction_priority=-1)], "ab", id="eviction priority before all"
        ),
        pytest.param([seen("b", priority=5501), seen("a", sub_priority=9999)], "ab", id="then priority"),
        pytest.param([seen("b", priority=5501), seen("a", priority=None)], "ab", id="no priority is the class's own"),
        pytest.param([seen("b", cpu=9), seen("a", sub_priority=5499)], "ab", id="then sub-priority"),
        pytest.param([seen("b", sub_priority=5501), seen("a")], "ab", id="without one the priority itself"),
        pytest.param(
            [seen("b", priority=0, sub_priority=5501), seen("a", priority=0)],
            "ab",
            id="that of its class where it has none",
        ),
        pytest.param([seen("b", cpu=1), seen("a", cpu=2)], "ab", id="then the larger amount"),
        pytest.param([seen("b"), seen("a"), seen("c")], "bac", id="ties keep the pods' order"),
    ],
)
def test_the_order_by_priority(pods: list[EvictPod], order: str) -> None:
    assert names(every_priority(*pods)) == list(order)


@pytest.mark.parametrize("candidates", BEST_EFFORT)
@pytest.mark.parametrize(
    ("pods", "order"),
    [
        pytest.param(
            [be("c", sub_priority=5900, used=9, batch_cpu=9), be("a", sub_priority=5100), be("b", sub_priority=5300)],
            "abc",
            id="before memory and share",
        ),
        pytest.param([be("b", sub_priority=5501), be("a")], "ab", id="without one the priority itself"),
        pytest.param([be("b"), be("a", sub_priority=5499)], "ab", id="a lower one goes before it"),
        pytest.param(
            [be("b", priority=None, sub_priority=5501), be("a", priority=None)], "ab", id="that of its class if none"
        ),
        pytest.param([be("b", priority=5501, sub_priority=1), be("a", sub_priority=9)], "ab", id="after the priority"),
    ],
)
def test_sub_priorities_order_best_effort_pods_if_asked(candidates: Callable, pods: list[EvictPod], order: str) -> None:
    assert names(candidates(*pods, order=Order(sub_priority=True))) == list(order)


@pytest.mark.parametrize("candidates", EVERY_WAY)
def test_free_pods_go_first_of_all_if_asked(candidates: Callable) -> None:
    pods = [
        be("batch", priority=100, band="koord-batch", used=5, eviction_priority=-1),
        be("labelled", priority=9000, band="koord-free", used=1),
        be("numbered", priority=3500, used=1),
        be("mid", priority=3000, band="koord-mid", used=1),
    ]

    assert names(candidates(*pods)) == ["batch", "mid", "numbered", "labelled"]
    assert names(candidates(*pods, order=Order(free_first=True))) == ["numbered", "labelled", "batch", "mid"]


@given(data=st.data(), pods=any_pods("F", "G"), order=orders)
@settings(max_examples=60)
def test_where_nothing_ties_the_order_of_the_pods_does_not_matter(
    data: st.DataObject, pods: list[EvictPod], order: Order
) -> None:
    pods = distinct(pods)
    shuffled = data.draw(st.permutations(pods))

    for candidates in (by_memory, by_ratio, every_priority):
        assert candidates(*shuffled, order=order) == candidates(*pods, order=order)


@given(pods=any_pods("F", "G"), order=orders)
@settings(max_examples=60)
def test_switches_order_candidates_and_choose_none(pods: list[EvictPod], order: Order) -> None:
    for candidates in (by_memory, by_ratio, every_priority):
        assert set(candidates(*pods, order=order)) == set(candidates(*pods))
