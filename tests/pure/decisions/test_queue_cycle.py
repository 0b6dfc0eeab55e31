"""Laws of scheduling cycles."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.assign import Check, Group, PodSet
from slacktide.streams.decisions.queue.cycle import Head, cycle
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaTree, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload
from testbed.queue_worlds import trees

CPU0, CPU1 = FlavorResource("f0", "cpu"), FlavorResource("f1", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("f0", "f1")),)
ANY = Preemption("LowerPriority", "Any")


def workload(uid, queue, cpu, priority) -> Workload:
    pod_sets = (PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds()),)
    return Workload(Pending(Queued(uid, priority, 0), pod_sets=cpu), queue, pod_sets)


def state(tree: QuotaTree, *, fair=False, holders=(), checks=()) -> Scheduling:
    queues = [ClusterQueue(node, GROUPS, policies=ANY, checks=checks) for node in tree.queues.values()]
    return Scheduling(queues, holders, Settings(fair_sharing=fair))


@given(trees(), st.booleans(), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=8))
def test_admissions_never_use_more_than_is_available(tree: QuotaTree, fair, asked) -> None:
    run = state(tree, fair=fair)
    names = sorted(tree.queues)
    for at, (cpu, priority) in enumerate(asked):
        run.push(workload(f"w{at}", names[at % len(names)], cpu, priority), 0)
    for _ in range(6):
        before = run.usage.copy()
        entries = run.cycle(0).entries
        queues = [one.head.cluster.queue for one in entries]
        assert len(queues) == len(set(queues))
        for one in entries:
            if one.status == "assumed":
                queue = one.head.cluster.queue
                assert all(before.fits(queue, of, amount) for of, amount in one.assignment.usage().items())
        assert all(
            run.usage.available(node, of) >= 0
            for node in tree.queues.values()
            for of in (CPU0, CPU1)
            if run.usage.usage(node, of)
        )


@given(trees(), st.booleans(), st.sampled_from(["f0", "f1"]))
def test_a_flavor_with_an_admission_check_is_neither_given_nor_preempted_for(tree: QuotaTree, fair, flavor) -> None:
    of = FlavorResource(flavor, "cpu")
    queues = list(tree.queues.values())
    holders = [Holder(Queued(f"h{at}", 0, 0), queue, frozenset({of}), {of: 5}, 0) for at, queue in enumerate(queues)]
    run = state(tree, fair=fair, holders=holders, checks=(Check("provision", frozenset({flavor})),))
    for at, queue in enumerate(queues):
        run.push(workload(f"w{at}", queue.name, 5, 1), 0)
    for _ in range(4):
        for one in run.cycle(0).entries:
            if one.requeue_reason == "AdmissionCheck:provision":
                assert (one.status, one.assignment) == ("inadmissible", None)
            elif one.assignment is not None and one.assignment.mode != "NoFit":
                assert one.assignment.check(one.head.cluster.checks) == ""


@given(trees(), st.booleans())
def test_a_victim_goes_for_one_workload_only(tree: QuotaTree, fair) -> None:
    queues = list(tree.queues.values())
    holders = [
        Holder(Queued(f"h{at}", 0, 0), queue, frozenset({CPU0}), {CPU0: 10}, 0) for at, queue in enumerate(queues)
    ]
    run = state(tree, fair=fair, holders=holders)
    for at, queue in enumerate(queues):
        run.push(workload(f"w{at}", queue.name, 10, 1), 0)
    victims = [each.holder.queued.uid for one in run.cycle(0).entries if one.evicts for each in one.assignment.targets]
    assert len(victims) == len(set(victims))


def test_a_head_is_tried_for_the_first_time_in_a_namespace_that_matches_unless_stated_otherwise() -> None:
    run = state(quota_tree([NodeSpec("a", quotas={CPU0: Quota(5)})]))
    head = Head(Queued("w", 0, 0), run.cluster("a", 0), [PodSet("main", 1, None, {"cpu": 4}, NodeNeeds())])
    assert not head.barred
    assert not head.has_progress
    assert [one.status for one in cycle([head], run.usage)] == ["assumed"]
