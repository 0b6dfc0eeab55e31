"""The eviction loop: several features, one count of what is released; and the laws of both evictions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.evict_tasks import (
    Amounts,
    Evictions,
    EvictPod,
    EvictTask,
    Kind,
    Order,
    Release,
    evict,
)
from slacktide.streams.decisions.evict.node_evict import CpuEvictNode, cpu_evict, memory_evict
from testbed.evict_cases import any_pods, be, distinct, evicted, gone, sold
from testbed.vectors import each_row

A, B, C, D = (be(name) for name in "abcd")
OLD = be("old", already_evicted=True)


def task(
    to_release: Amounts, candidates: list[tuple[EvictPod, Amounts]], *, feature: str = "F", kind: Kind = "used"
) -> EvictTask:
    """Each candidate with what it frees; any other pod frees nothing for this task."""
    status = "release" if to_release else "nothing_to_release"
    frees = dict(candidates)
    return EvictTask(
        feature=feature,
        kind=kind,
        release=Release(status=status, amounts=to_release, because=()),
        candidates=tuple(frees),
        frees=lambda pod: frees.get(pod, {}),
    )


def each(amount: int, *pods: EvictPod, resource: str = "mem_bytes") -> list[tuple[EvictPod, Amounts]]:
    return [(pod, {resource: amount}) for pod in pods]


PODS = {"a": A, "b": B, "c": C, "d": D, "old": OLD, "twin of a": be("a")}


def asked(tasks: list[dict[str, Any]]) -> list[EvictTask]:
    """Tasks of rows: what each is to release, and which pods, in order, free what for it."""
    named = [one | {"frees": [(PODS[pod], frees) for pods, frees in one["frees"] for pod in pods]} for one in tasks]
    return [task(one.pop("release"), one.pop("frees"), **one) for one in named]


MEM, BATCH, MID = "mem_bytes", "batch_mem_bytes", "mid_mem_bytes"


@each_row("tasks", "victims")
def test_candidates_go_in_order_until_enough_is_released(tasks: list[dict[str, Any]], victims: str) -> None:
    assert evicted(evict(asked(tasks))) == list(victims)


def test_what_one_feature_releases_the_next_need_not() -> None:
    first, second = task({MEM: 10}, each(10, A)), task({MEM: 20}, each(10, A, B, C), feature="G")

    assert [(victim.pod, victim.feature) for victim in evict([first, second]).victims] == [(A, "F"), (B, "G")]


def test_features_that_count_the_same_of_a_victim_count_it_once_and_the_larger() -> None:
    first = task({MEM: 5}, [(A, {MEM: 7}), (B, {MEM: 2})])
    second = task({MEM: 10}, [(A, {MEM: 3}), (B, {MEM: 4}), *each(9, C)], feature="G")

    done = evict([first, second])

    assert evicted(done) == ["a", "b"]
    assert done.because[-1].terms["used_mem_released_bytes"] == 7 + 4


@each_row("tasks", "bound", "terms")
def test_the_outcome_sets_what_is_released_against_what_was_wanted(
    tasks: list[dict[str, Any]], bound: str, terms: dict
) -> None:
    outcome = evict(asked(tasks)).because[-1]

    assert (outcome.of, outcome.bound) == ("evicted_pods", bound)
    assert list(outcome.terms.items()) == list(terms.items())


FEATURES = {
    "cpu": ("BECPUEvict", "CPUAllocatableEvict", "CPUEvict"),
    "mem": ("BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"),
}
RULES = {"cpu": cpu_evict, "mem": memory_evict}
ALL = ResourceThreshold(
    mem_evict_threshold_pct=80,
    mem_evict_lower_pct=60,
    mem_allocatable_evict_threshold_pct=80,
    mem_allocatable_evict_lower_pct=50,
    cpu_evict_be_satisfaction_lower_pct=40,
    cpu_evict_be_satisfaction_upper_pct=50,
    cpu_evict_threshold_pct=80,
    cpu_evict_lower_pct=60,
    cpu_allocatable_evict_threshold_pct=80,
    cpu_allocatable_evict_lower_pct=50,
    evict_enabled_priority_threshold=7000,
    allocatable_evict_priority_threshold=7999,
)


def starved(request_milli: float) -> BeCpuWindow:
    """A quarter of what was requested, in use; another quarter is to be released."""
    be_cpu = BeCpu(usage_milli=request_milli, request_milli=request_milli, limit_milli=request_milli / 4)
    return BeCpuWindow(average=be_cpu, current=be_cpu, samples=60, interval_s=1)


def decided(
    scarce: str,
    pods: list[EvictPod],
    turns: tuple[int, ...],
    node: dict[str, Any],
    *,
    free_first: bool = False,
    **policy: Any,
) -> Evictions:
    thresholds = msgspec.structs.replace(ALL, **policy)
    return RULES[scarce](
        CpuEvictNode(**{"capacity": 100, "pods": pods} | node),
        features=[FEATURES[scarce][at] for at in turns],
        policy=thresholds,
        order=Order(free_first=free_first, sub_priority=thresholds.sub_priority_enable),
    )


each_eviction = pytest.mark.parametrize("scarce", ["cpu", "mem"])
pods_of_any_kind = any_pods(*FEATURES["cpu"], *FEATURES["mem"])
turns = st.integers(0, 2)
some_turns = st.lists(turns, unique=True).map(tuple)
nodes = st.fixed_dictionaries(
    {
        "used": st.sampled_from([90, 101, 130, 180, 79, None]),
        "allocatable": sold,
        "be": st.sampled_from([160, 400, 10, 0]).map(starved),
    }
)


@each_eviction
@given(pods=pods_of_any_kind, turn=turns, node=nodes)
def test_no_victim_too_many(scarce: str, pods: list[EvictPod], turn: int, node: dict) -> None:
    """Victims go in the candidates' order, and without the last one something that is wanted is not released."""
    done = decided(scarce, pods, (turn,), node)
    (task,) = done.tasks
    order = {pod: at for at, pod in enumerate(task.candidates)}
    places = [order[victim.pod] for victim in done.victims]

    assert places == sorted(places)
    if not places:
        return
    last = done.victims[-1].pod
    (resource,) = task.frees(last)
    before = [pod for pod in task.candidates[: order[last]] if pod.already_evicted or order[pod] in places]
    assert sum(task.frees(pod).get(resource, 0) for pod in before) < task.release.amounts[resource]


@each_eviction
@given(pods=pods_of_any_kind, enabled=some_turns, node=nodes, free_first=st.booleans(), sub=st.booleans())
def test_who_is_never_a_victim(
    scarce: str, pods: list[EvictPod], enabled: tuple[int, ...], node: dict, *, free_first: bool, sub: bool
) -> None:
    for victim in decided(scarce, pods, enabled, node, free_first=free_first, sub_priority_enable=sub).victims:
        one = victim.pod
        assert one.pod.phase in ("Running", "Pending")
        assert not one.already_evicted
        assert not one.spared
        assert one.pod.eviction_features is None or victim.feature in one.pod.eviction_features
        if victim.feature == FEATURES[scarce][0]:
            assert one.pod.qos_label == "BE"
        else:
            assert one.pod.eviction_enabled
            assert (one.pod.priority or 0) <= 7999


def raised(scarce: str, turn: int, pct: int) -> dict[str, int | None]:
    """The thresholds of a feature."""
    if turn == 1:
        return {f"{scarce}_allocatable_evict_threshold_pct": pct, f"{scarce}_allocatable_evict_lower_pct": -1}
    if (scarce, turn) == ("cpu", 0):
        return {"cpu_evict_be_usage_threshold_pct": pct}
    return {f"{scarce}_evict_threshold_pct": pct, f"{scarce}_evict_lower_pct": None}


@each_eviction
@given(pods=pods_of_any_kind, turn=turns, node=nodes, pct=st.integers(0, 120))
def test_raising_a_threshold_adds_no_victim(scarce: str, pods: list[EvictPod], turn: int, node: dict, pct: int) -> None:
    lower, higher = (decided(scarce, pods, (turn,), node, **raised(scarce, turn, at)) for at in (pct, pct + 1))

    assert {victim.pod for victim in higher.victims} <= {victim.pod for victim in lower.victims}


@each_eviction
@given(data=st.data(), pods=pods_of_any_kind, enabled=some_turns, node=nodes)
def test_where_nothing_ties_the_order_of_the_pods_does_not_matter(
    scarce: str, data: st.DataObject, pods: list[EvictPod], enabled: tuple[int, ...], node: dict
) -> None:
    pods = distinct(pods)
    node |= {"capacity": 1000, "used": 1200}

    shuffled = decided(scarce, data.draw(st.permutations(pods)), enabled, node)
    as_given = decided(scarce, pods, enabled, node)

    assert evicted(shuffled) == evicted(as_given)
    assert shuffled.because == as_given.because


@each_eviction
@given(pods=pods_of_any_kind, enabled=some_turns, node=nodes)
def test_asked_again_while_the_victims_are_still_there_it_finds_no_more(
    scarce: str, pods: list[EvictPod], enabled: tuple[int, ...], node: dict
) -> None:
    first = decided(scarce, pods, enabled, node)

    assert decided(scarce, gone(pods, first), enabled, node).victims == ()


@each_eviction
@given(pods=pods_of_any_kind, enabled=some_turns, node=nodes)
def test_the_terms_end_in_the_amounts_to_release(
    scarce: str, pods: list[EvictPod], enabled: tuple[int, ...], node: dict
) -> None:
    release = {"cpu": "release_milli", "mem": "release_bytes"}[scarce]
    for task in decided(scarce, pods, enabled, node).tasks:
        shown = {
            because.of: because.terms[release]
            for because in task.release.because
            if task.release.amounts and release in because.terms
        }
        assert shown == {f"{task.feature}/{resource}": amount for resource, amount in task.release.amounts.items()}
