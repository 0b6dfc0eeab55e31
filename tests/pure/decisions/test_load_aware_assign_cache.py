"""The load of a node from one report to the next, as pods come and go."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import (
    AssignCache,
    ExistingLoad,
    NodeReport,
    assigned_pod,
    existing_load,
)
from testbed.load_aware_cases import EXACT, NAMES, T, all_args, asked, assigned, pods, report, reports

MEASURED = report((1000, 1000), {"a": (40, 4)})


def test_the_load_is_computed_once_per_change() -> None:
    """A scheduler asks for it for each pod it places anywhere."""
    cache = AssignCache(args=EXACT, report=MEASURED)
    first = cache.load()

    assert cache.load() is first

    cache.unassign(asked((100, 10)))
    assert cache.load() is first


def test_two_nodes_share_nothing() -> None:
    one, other = AssignCache(args=EXACT, report=MEASURED), AssignCache(args=EXACT, report=MEASURED)
    one.assign(asked((100, 10)), at_s=T)

    assert (one.load().everyone, other.load().everyone) == ((1060, 1006), (1000, 1000))


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
