"""The load of a node from one report to the next, as pods come and go."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import (
    AssignCache,
    ExistingLoad,
    NodeReport,
    assigned_pod,
    existing_load,
)
from testbed.load_aware_cases import EXACT, GIB, NAMES, T, all_args, answered, asked, assigned, pods, report, reports

LONG_AGO = T - 3600
POD = asked((100, 10))
"""It has no scheduled time: it is as old as the event that brought it."""
MEASURED = report((1000, 1000), {"a": (40, 4)})
OLD, YOUNG = (1000, 1000), (1060, 1006)
"""What the node's load is when the pod is taken at its use, and at its estimate."""


@pytest.fixture
def cache() -> AssignCache:
    """A node that reported, with nothing assigned."""
    cache = AssignCache(args=EXACT)
    cache.measured(MEASURED)
    return cache


def everyone(cache: AssignCache) -> tuple[int, int] | None:
    load = cache.load()
    return load and tuple(load.everyone)


def changed(pod: LoadAwarePod, **said: object) -> LoadAwarePod:
    return replace(pod, pod=msgspec.structs.replace(pod.pod, **said))


def test_a_pod_counts_from_when_it_was_assigned(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)

    assert everyone(cache) == YOUNG


def test_a_pod_is_as_old_as_its_scheduled_time_or_else_its_event(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T - 60)
    assert everyone(cache) == OLD

    cache.assign(asked((100, 10), scheduled_s=T), at_s=T - 60)
    assert everyone(cache) == YOUNG

    cache.assign(asked((100, 10), scheduled_s=LONG_AGO), at_s=T)
    assert everyone(cache) == OLD


def test_an_unassigned_pod_is_gone(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)
    assert everyone(cache) == YOUNG

    cache.unassign(POD)
    assert everyone(cache) == (1000, 1000)
    assert cache.load().prod == (0, 0)


def test_to_unassign_an_unknown_pod_changes_nothing(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)
    cache.unassign(asked(name="b"))

    assert everyone(cache) == YOUNG


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminated_pod_is_not_assigned(cache: AssignCache, phase: str) -> None:
    """One that is known stays as it was."""
    cache.assign(asked((100, 10), phase=phase), at_s=T)
    assert cache.load().node_full == (0, 0)

    cache.assign(POD, at_s=T)
    cache.assign(asked((100, 10), phase=phase), at_s=T)
    assert cache.load().node_full == (100, 10)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_update_says_that_a_pod_has_ended(cache: AssignCache, phase: str) -> None:
    cache.assign(POD, at_s=T)
    cache.update(changed(POD, phase=phase), at_s=T)
    assert cache.load().node_full == (0, 0)

    cache.update(changed(POD, phase=phase), at_s=T)
    assert cache.load().node_full == (0, 0)


def test_an_update_of_an_unknown_pod_assigns_it(cache: AssignCache) -> None:
    cache.update(POD, at_s=T)

    assert everyone(cache) == YOUNG


def requesting(pod: LoadAwarePod) -> LoadAwarePod:
    return changed(pod, requests=Resources(cpu_milli=100, mem_bytes=10, mid_cpu_milli=1))


def limited(pod: LoadAwarePod) -> LoadAwarePod:
    return changed(pod, limits=Resources(cpu_milli=100, mem_bytes=10))


@pytest.mark.parametrize(
    ("updated", "again"),
    [
        pytest.param(POD, False, id="nothing"),
        pytest.param(changed(POD, phase="Pending"), False, id="its phase"),
        pytest.param(changed(POD, qos_label="LSR"), False, id="a label"),
        pytest.param(replace(POD, custom_after_scheduled_s=5), False, id="an annotation"),
        pytest.param(replace(POD, daemonset=True), False, id="its owner"),
        pytest.param(requesting(POD), True, id="a request"),
        pytest.param(limited(POD), True, id="a limit"),
        pytest.param(changed(POD, priority=9500), True, id="its priority"),
        pytest.param(replace(POD, initialized_s=LONG_AGO), True, id="it was initialized"),
    ],
)
def test_an_update_assigns_a_pod_anew_if_its_spec_or_conditions_changed(
    cache: AssignCache, updated: LoadAwarePod, again
) -> None:
    """Then its event's time is new, too."""
    cache.assign(POD, at_s=T - 60)
    assert everyone(cache) == OLD

    cache.update(updated, at_s=T)
    assert everyone(cache) == (YOUNG if again else OLD)


def test_an_update_tells_when_a_pod_was_scheduled(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)
    cache.update(asked((100, 10), scheduled_s=T - 60), at_s=T)

    assert everyone(cache) == OLD


def test_labels_of_a_known_pod_change_with_its_spec_only(cache: AssignCache) -> None:
    """The pod's object is the one that was assigned last."""
    cache.assign(POD, at_s=T)
    batch = changed(POD, priority_class_label="koord-batch")

    cache.update(batch, at_s=T)
    assert cache.load().prod == (100, 10)

    cache.update(changed(batch, priority=5500), at_s=T)
    assert cache.load().prod == (0, 0)


def test_a_report_counts_from_when_it_came(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)
    assert everyone(cache) == YOUNG

    cache.measured(report((1, 1), {"a": (40, 4)}, updated_s=T + 60))
    assert everyone(cache) == (1, 1)


def test_pods_stay_while_there_is_no_metric(cache: AssignCache) -> None:
    cache.assign(POD, at_s=T)
    assert everyone(cache) == YOUNG

    cache.measured(None)
    assert cache.load() is None

    cache.assign(asked((100, 10), name="b"), at_s=T)
    assert cache.load() is None

    cache.measured(MEASURED)
    assert everyone(cache) == (1160, 1016)


def test_a_report_without_a_time_forgets_that_of_the_one_before(cache: AssignCache) -> None:
    """Different on purpose from the reference, which goes on with the time of the last report that had one."""
    cache.assign(POD, at_s=T - 60)
    cache.measured(report((1000, 1000), {"a": (40, 4)}, updated_s=None))

    assert everyone(cache) == YOUNG


def test_pods_without_a_uid_are_told_apart_by_namespace_and_name(cache: AssignCache) -> None:
    for namespace, name in (("x", "a"), ("y", "a"), ("x", "b"), ("x", "a")):
        cache.assign(changed(POD, uid="", namespace=namespace, name=name), at_s=T)

    assert cache.load().node_full == (300, 30)


def test_pods_of_one_name_are_told_apart_by_their_uid(cache: AssignCache) -> None:
    """One that was deleted and its successor."""
    cache.assign(changed(POD, uid="1"), at_s=T)
    cache.assign(changed(POD, uid="2"), at_s=T)

    assert cache.load().node_full == (200, 20)


def test_the_load_is_computed_once_per_change(cache: AssignCache) -> None:
    """A scheduler asks for it for each pod it places anywhere."""
    first = cache.load()

    assert cache.load() is first

    cache.unassign(POD)
    assert cache.load() is first


def test_two_nodes_share_nothing() -> None:
    one, other = AssignCache(args=EXACT, report=MEASURED), AssignCache(args=EXACT, report=MEASURED)
    one.assign(POD, at_s=T)

    assert (everyone(one), everyone(other)) == (YOUNG, (1000, 1000))


Event = tuple[str, int, LoadAwarePod | NodeReport | None]
pod_events = st.tuples(
    st.sampled_from(["assign", "assign", "unassign", "update", "update"]),
    st.integers(T - 100, T + 100),
    st.sampled_from(NAMES[:3]).flatmap(pods),
)
report_events = st.tuples(st.just("measured"), st.just(0), st.one_of(reports, reports, st.none()))
events = st.lists(st.one_of(pod_events, pod_events, pod_events, report_events), max_size=12)


def fresh(past: list[Event], args: LoadAwareArgs) -> ExistingLoad | None:
    """The load by the book: each pod by what the past says of it, and the last report."""
    reported = next((said for kind, _, said in reversed(past) if kind == "measured"), None)
    if not isinstance(reported, NodeReport):
        return None
    found = (_last(name, past) for name in NAMES)
    there = [assigned_pod(pod, now_s=at_s, args=args) for pod, at_s in filter(None, found)]
    return existing_load(reported, there, prod_include_system=args.prod_include_system)


def _last(name: str, past: list[Event]) -> tuple[LoadAwarePod, int] | None:
    """A pod as it was assigned last, and when."""
    there: tuple[LoadAwarePod, int] | None = None
    for kind, at_s, pod in past:
        if not isinstance(pod, LoadAwarePod) or pod.pod.name != name:
            continue
        ended = pod.pod.phase in {"Succeeded", "Failed"}
        if kind == "unassign" or (kind == "update" and ended):
            there = None
        elif not ended and (kind == "assign" or there is None or not _alike(pod, there[0])):
            there = pod, at_s
    return there


def _alike(one: LoadAwarePod, other: LoadAwarePod) -> bool:
    """Whether specs and conditions are."""
    spec = ("requests", "limits", "priority")
    return all(getattr(one.pod, part) == getattr(other.pod, part) for part in spec) and (
        (one.scheduled_s, one.initialized_s) == (other.scheduled_s, other.initialized_s)
    )


@given(happened=events, args=all_args)
def test_after_every_event_the_load_is_that_of_a_fresh_computation(happened: list[Event], args: LoadAwareArgs) -> None:
    cache = AssignCache(args=args)
    for count, (kind, at_s, said) in enumerate(happened, 1):
        if not isinstance(said, LoadAwarePod):
            cache.measured(said)
        elif kind == "unassign":
            cache.unassign(said)
        else:
            {"assign": cache.assign, "update": cache.update}[kind](said, at_s=at_s)

        load, expected = cache.load(), fresh(happened[:count], args)
        assert (load and (load.everyone, load.prod, load.node_full)) == (
            expected and (expected.everyone, expected.prod, expected.node_full)
        )


@given(first=pods("a"), second=pods("b"), reported=reports, args=all_args)
def test_what_comes_and_goes_leaves_nothing(
    first: LoadAwarePod, second: LoadAwarePod, reported: NodeReport, args: LoadAwareArgs
) -> None:
    cache = AssignCache(args=args, report=reported)
    cache.assign(first, at_s=T)
    cache.assign(second, at_s=T)
    cache.unassign(second)

    alone = existing_load(reported, assigned((first,), args, T), prod_include_system=args.prod_include_system)
    assert cache.load() == alone


def event(kind: str, **said: object) -> dict:
    return {"at_seconds": T, "type": kind} | said


GIVEN_POD = {
    "uid": "a",
    "name": "a",
    "priority_class": "koord-prod",
    "requests": {"cpu_milli": 1000, "memory_bytes": 10 * GIB},
}
GIVEN_METRIC = {"update_time_seconds": T, "node_usage": {"cpu_milli": 5000, "memory_bytes": GIB}}
NULL = {"existing_estimated_all": None, "existing_estimated_prod": None}


def test_a_case_tells_both_views_after_each_event() -> None:
    happened = [
        event("assign", pod=GIVEN_POD),
        event("node_metric", node_metric=GIVEN_METRIC),
        event("pod_update", pod=GIVEN_POD | {"limits": {"cpu_milli": 100}}),
        event("unassign", pod=GIVEN_POD),
        event("delete_node_metric"),
    ]
    args = {"estimated_scaling_factors": {"cpu": 100, "memory": 100}}

    assert answered("load_aware_assign_cache", {"args": args, "events": happened})["output"]["after_each_event"] == [
        NULL,
        {
            "existing_estimated_all": {"cpu_milli": 6000, "memory_bytes": 11 * GIB},
            "existing_estimated_prod": {"cpu_milli": 1000, "memory_bytes": 10 * GIB},
        },
        {
            "existing_estimated_all": {"cpu_milli": 5100, "memory_bytes": 11 * GIB},
            "existing_estimated_prod": {"cpu_milli": 100, "memory_bytes": 10 * GIB},
        },
        {
            "existing_estimated_all": {"cpu_milli": 5000, "memory_bytes": GIB},
            "existing_estimated_prod": {"cpu_milli": 0, "memory_bytes": 0},
        },
        NULL,
    ]


def test_a_case_tells_the_arithmetic_of_each_event() -> None:
    happened = [event("assign", pod=GIVEN_POD), event("node_metric", node_metric=GIVEN_METRIC)]
    told = answered("load_aware_assign_cache", {"args": None, "events": happened}, explain=True)["because"]

    assert [because["of"] for because in told] == [
        "after_each_event/1/existing_estimated_all/cpu_milli",
        "after_each_event/1/existing_estimated_all/memory_bytes",
        "after_each_event/1/existing_estimated_prod/cpu_milli",
        "after_each_event/1/existing_estimated_prod/memory_bytes",
    ]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, "input: Object missing required field `events`"),
        ({"events": [event("assign")]}, "input.events[0].pod: missing: an event of type assign requires it"),
        (
            {"events": [event("delete_node_metric"), event("pod_update", pod=None)]},
            "input.events[1].pod: missing: an event of type pod_update requires it",
        ),
        (
            {"events": [event("node_metric", node_metric=None)]},
            "input.events[0].node_metric: missing: an event of type node_metric requires it",
        ),
        ({"events": [event("scheduled")]}, "input.events[0].type: Invalid enum value 'scheduled'"),
    ],
)
def test_what_cannot_be_computed_names_the_field(said: dict, error: str) -> None:
    assert answered("load_aware_assign_cache", said) == {"error": error}


def test_a_day_without_events_is_a_case() -> None:
    assert answered("load_aware_assign_cache", {"events": []}) == {"output": {"after_each_event": []}}
