"""All ClusterQueues from cycle to cycle: what gives others another try, and which flavors a try begins with."""

from slacktide.streams.decisions.queue.assign import Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds, PodGroup
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload

CPU, FAST = FlavorResource("f", "cpu"), FlavorResource("fast", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("f", "fast")),)
GI = 2**30
TREE = quota_tree([NodeSpec("a", quotas={CPU: Quota(9000), FAST: Quota(9000)})])
NODE = TREE.queues["a"]


def state(holders=(), *, policies=Preemption(), **settings) -> Scheduling:  # noqa: B008 - it is a tuple
    """One ClusterQueue. ``settings``: of all of them."""
    return Scheduling([ClusterQueue(NODE, GROUPS, policies=policies)], holders, Settings(**settings))


def on_nodes(*cpu_milli: int) -> dict:
    """Sizes of flavor f's nodes."""
    return {"sizes": {"f": [(each, GI) for each in cpu_milli]}}


def asks(uid, cpu, *, priority=0, created_s=0) -> Workload:
    pod_sets = (PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds()),)
    return Workload(Pending(Queued(uid, priority, created_s), pod_sets=cpu), "a", pod_sets)


def holds(uid, cpu, *, of=CPU, pods=()) -> Holder:
    return Holder(Queued(uid, 0, 0), NODE, frozenset({of}), {of: cpu}, 0, pods)


def pod_of(cpu_milli: int) -> tuple[PodGroup, ...]:
    """On a node of flavor f."""
    return (PodGroup("f", 1, cpu_milli, 0),)


def became(run: Scheduling) -> list[tuple]:
    """Of the next cycle each workload with its flavors, and with its reason if it waits."""
    return [
        (one.head.queued.uid, *(sorted({of.flavor for of in one.assignment.usage()})), one.requeue_reason)
        for one in run.cycle(0).entries
        if one.assignment is not None
    ]


def test_a_workload_that_gives_up_a_part_lets_others_be_tried_again_and_one_that_gives_nothing_does_not() -> None:
    run = state([holds("h", 8000), holds("i", 8000, of=FAST)])
    run.push(asks("w", 2000), 0)
    run.cycle(0)
    run.hold(holds("h", 8000), 0)
    assert not run.waiting["a"].is_active("w")
    run.hold(holds("h", 6000), 0)
    assert became(run) == [("w", "f", "")]


def test_pods_stay_where_they_are_until_they_are_others() -> None:
    held = [holds("x", 0, pods=pod_of(8000)), holds("h", 0, pods=pod_of(4000))]
    run = state(held, **on_nodes(8000, 4000))
    run.release("x", 0)
    run.hold(holds("h", 0, pods=pod_of(4000)), 0)
    run.push(asks("large", 8000), 0)
    assert became(run) == [("large", "f", "")], "the larger node is free"
    run.push(asks("next", 100), 0)
    assert became(run) == [("next", "f", "NoRoomForAllPods")], "each node is full"
    run.hold(holds("h", 0, pods=pod_of(3900)), 0)
    run.delete("next", 0)
    run.push(asks("last", 50), 0)
    assert became(run) == [("last", "f", "")]
    run.hold(holds("h", 0, pods=pod_of(3950)), 0)
    run.push(asks("more", 50), 0)
    assert became(run) == [("more", "f", "NoRoomForAllPods")], "its pod grew"


def test_what_is_admitted_takes_its_room() -> None:
    run = state(**on_nodes(1000))
    run.push(asks("first", 800), 0)
    run.push(asks("then", 800, created_s=1), 0)
    assert became(run) == [("first", "f", "")]
    assert became(run) == [("then", "f", "NoRoomForAllPods")]
    assert became(run) == [("then", "fast", "")]


def test_who_changed_in_the_meantime_is_tried_from_the_first_flavor_on() -> None:
    for priority, cpu in ((1, 500), (-1, 500), (0, 500)):
        run = state(**on_nodes(1000))
        run.push(asks("w", 2000), 0)
        assert became(run) == [("w", "f", "NoRoomForAllPods")]
        run.push(asks("w", cpu, priority=priority), 0)
        assert became(run) == [("w", "f", "")]


def test_after_a_cycle_without_it_a_workload_begins_anew_only_if_quota_became_free() -> None:
    for freed in (False, True):
        run = state([holds("h", 1, pods=pod_of(1000))], **on_nodes(1000))
        for _ in range(5):
            run.cycle(0)
        run.push(asks("w", 1000), 0)
        assert became(run) == [("w", "f", "NoRoomForAllPods")]
        run.push(asks("first", 7000, priority=1), 0)
        assert became(run) == [("first", "f", "NoRoomForAllPods")]
        assert became(run) == [("first", "fast", "")]
        if freed:
            run.release("h", 0)
        assert became(run) == [("w", "f" if freed else "fast", "")]


def test_cycles_end_at_one_that_admits_nothing() -> None:
    for namespace_matches in (True, False):
        run = state()
        first = asks("first", 9500 if namespace_matches else 1)
        run.push(first._replace(pending=first.pending._replace(namespace_matches=namespace_matches)), 0)
        run.push(asks("then", 1, created_s=1), 0)
        assert len(list(run.cycles(0))) == 1
        assert run.waiting["a"].is_active("then")


def test_shares_count_and_the_references_victims_are_counted_only_if_it_is_asked_for() -> None:
    assert not state().cluster("a", 0).fair_sharing
    held = [holds(f"h{at}", cpu) for at, cpu in enumerate((1000, 1000, 2000, 4000))]
    run = state([*held, holds("i", 8000, of=FAST)], policies=Preemption("LowerPriority"), corrected=True)
    run.push(asks("p", 7000, priority=1), 0)
    (entry,) = run.cycle(0).entries
    assert (len(entry.assignment.targets), entry.assignment.targets_saved_count) == (2, 0)
