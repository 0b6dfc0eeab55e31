"""Scheduling cycles: laws, and what lies between two cycles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.assign import Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.cycle import Entry, Head, cycle
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import Condition, Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaTree, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload
from testbed.queue_worlds import trees

CPU0, CPU1 = FlavorResource("f0", "cpu"), FlavorResource("f1", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("f0", "f1")),)
ANY = Preemption("LowerPriority", "Any")


def workload(uid, queue, cpu, *, priority=0, created_s=0, **changed) -> Workload:
    pod_sets = (PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds()),)
    return Workload(Pending(Queued(uid, priority, created_s), pod_sets=cpu)._replace(**changed), queue, pod_sets)


def state(tree: QuotaTree, *, fair=False, holders=(), **rules) -> Scheduling:
    queues = [ClusterQueue(node, GROUPS, **rules) for node in tree.queues.values()]
    return Scheduling(queues, holders, Settings(fair_sharing=fair))


def alone(nominal, **rules) -> Scheduling:
    quotas = {CPU0: Quota(nominal), CPU1: Quota(nominal)}
    return state(quota_tree([NodeSpec("a", quotas=quotas)]), **rules)


def became(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(one.head.queued.uid, one.requeue_reason or one.status) for one in entries]


@given(trees(), st.booleans(), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=8))
def test_admissions_never_use_more_than_is_available(tree: QuotaTree, fair, asked) -> None:
    run = state(tree, fair=fair, policies=ANY)
    names = sorted(tree.queues)
    for at, (cpu, priority) in enumerate(asked):
        run.push(workload(f"w{at}", names[at % len(names)], cpu, priority=priority), 0)
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


@given(trees(), st.booleans())
def test_a_victim_goes_for_one_workload_only(tree: QuotaTree, fair) -> None:
    queues = list(tree.queues.values())
    holders = [
        Holder(Queued(f"h{at}", 0, 0), queue, frozenset({CPU0}), {CPU0: 10}, 0) for at, queue in enumerate(queues)
    ]
    run = state(tree, fair=fair, holders=holders, policies=ANY)
    for at, queue in enumerate(queues):
        run.push(workload(f"w{at}", queue.name, 10, priority=1), 0)
    victims = [each.holder.queued.uid for one in run.cycle(0).entries if one.evicts for each in one.assignment.targets]
    assert len(victims) == len(set(victims))


def test_of_siblings_the_smallest_uid_goes_first_where_all_else_is_equal() -> None:
    specs = [NodeSpec(name, "c", {CPU0: Quota(0)}) for name in "ba"]
    for fair in (False, True):
        run = state(quota_tree(specs, [NodeSpec("c", quotas={CPU0: Quota(1)})]), fair=fair)
        run.push(workload("x", "b", 1), 0)
        run.push(workload("y", "a", 1), 0)
        assert became(run.cycle(0).entries) == [("x", "assumed"), ("y", "FailedAfterNomination")]


def test_trees_go_by_the_name_of_their_root() -> None:
    specs = [NodeSpec("z", None, {CPU0: Quota(1)}), NodeSpec("q", "r", {CPU0: Quota(1)}), NodeSpec("p", "s")]
    run = state(quota_tree(specs), fair=True)
    for name in "zqp":
        run.push(workload(f"of-{name}", name, 1), 0)
    assert [one.head.cluster.queue.name for one in run.cycle(0).entries] == ["q", "p", "z"]


def test_one_whose_namespace_does_not_match_is_not_tried_and_keeps_what_it_tried() -> None:
    run = alone(5, fungibility=Fungibility(next_when_preempting=False), policies=ANY)
    run.push(workload("h", "a", 5), 0)
    run.push(workload("g", "a", 5), 0)
    run.push(workload("w", "a", 4, created_s=1), 0)
    run.cycle(0)
    run.cycle(0)
    first = run.cycle(0).entries
    assert became(first) == [("w", "PreemptionNoCandidates")]
    assert first[0].keeps_progress
    run.waiting["a"].retry(0)
    run.push(workload("w", "a", 4, created_s=1, namespace_matches=False), 0)
    (other,) = run.cycle(0).entries
    assert (other.status, other.requeue_reason, other.quota_reason) == (
        "inadmissible",
        "NamespaceMismatch",
        "Misconfigured",
    )
    assert other.keeps_progress


@pytest.mark.parametrize(
    ("freed", "late", "flavor"), [(False, True, "f1"), (True, True, "f0"), (True, False, "f1"), (False, False, "f1")]
)
def test_a_later_try_goes_on_with_the_next_flavor_unless_quota_of_its_own_queue_became_free(
    freed, late, flavor
) -> None:
    specs = [NodeSpec("a", "c"), NodeSpec("b", "c")]
    run = state(quota_tree(specs, [NodeSpec("c", quotas={CPU0: Quota(5), CPU1: Quota(5)})]))
    run.push(workload("h", "a", 1), 0)
    run.cycle(0)
    run.push(workload("w", "a", 4), 0)
    run.push(workload("first", "b", 4), 0)
    assert became(run.cycle(0).entries) == [("first", "assumed"), ("w", "FailedAfterNomination")]
    run.release("first", 0)
    if freed:
        run.release("h", 0)
    if late:
        run.push(workload("u", "a", 99, priority=1), 0)
        assert became(run.cycle(0).entries) == [("u", "NoFit")]
    (entry,) = run.cycle(0).entries
    assert entry.assignment.pod_sets[0].flavors["cpu"].flavor == flavor


def test_what_it_tried_is_forgotten_when_its_shape_is_another() -> None:
    specs = [NodeSpec("a", "c"), NodeSpec("b", "c")]
    run = state(quota_tree(specs, [NodeSpec("c", quotas={CPU0: Quota(5), CPU1: Quota(5)})]))
    run.push(workload("w", "a", 4), 0)
    run.push(workload("first", "b", 4), 0)
    run.cycle(0)
    run.push(workload("w", "a", 1), 0)
    (entry,) = run.cycle(0).entries
    assert entry.assignment.pod_sets[0].flavors["cpu"].flavor == "f0"


def test_an_admitted_workload_is_evicted_no_more() -> None:
    run = alone(5)
    one = workload("w", "a", 5)
    evicted = one.pending.queued._replace(evicted=Condition("Preempted", 0))
    run.push(one._replace(pending=one.pending._replace(queued=evicted)), 7)
    run.cycle(7)
    holder = run.holders["w"]
    assert holder.queued.evicted == Condition("Preempted", 0, status=False)
    assert holder.reserved_at_s == 7


def test_what_is_released_may_be_used_by_all_of_the_tree() -> None:
    specs = [NodeSpec(name, "c", {CPU0: Quota(0)}) for name in "ab"] + [NodeSpec("other", None, {CPU0: Quota(0)})]
    run = state(quota_tree(specs, [NodeSpec("c", quotas={CPU0: Quota(1)})]))
    for uid, name in (("h", "a"), ("w", "b"), ("o", "other")):
        run.push(workload(uid, name, 1, created_s=int(uid == "w")), 0)
    run.cycle(0)
    run.cycle(0)
    assert [one.uid for one in run.waiting["b"].inadmissible] == ["w"]
    run.delete("h", 0)
    assert not run.holders
    assert [one.uid for one in run.waiting["b"].active] == ["w"]
    assert [one.uid for one in run.waiting["other"].inadmissible] == ["o"]
    run.delete("w", 0)
    assert run.cycle(0).entries == []


def test_of_two_the_one_that_borrows_none_of_what_it_uses_is_next_and_an_amount_of_nothing_is_no_use() -> None:
    """``a`` borrows GPUs. Its workload uses none or one; the share of ``b`` is larger, so only borrowing decides."""
    gpu = FlavorResource("f0", "gpu")
    for gpus, first in ((0, "of-a"), (1, "of-b")):
        a = NodeSpec("a", "c", {CPU0: Quota(9), gpu: Quota(0)}, 9.0)
        b = NodeSpec("b", "c", {CPU0: Quota(9), FlavorResource("f0", "x"): Quota(0)}, 0.001)
        tree = quota_tree([a, b], [NodeSpec("c", quotas={gpu: Quota(9), FlavorResource("f0", "x"): Quota(9)})])
        holders = [
            Holder(Queued("ha", 0, 0), tree.queues["a"], frozenset({gpu}), {gpu: 1}, 0),
            Holder(Queued("hb", 0, 0), tree.queues["b"], frozenset(), {FlavorResource("f0", "x"): 1}, 0),
        ]
        groups = (Group(frozenset({"cpu", "gpu"}), ("f0",)),)
        queues = [ClusterQueue(node, groups) for node in tree.queues.values()]
        run = Scheduling(queues, holders, Settings(fair_sharing=True))
        for name, asked in (("a", {"cpu": 1, "gpu": gpus}), ("b", {"cpu": 1})):
            one = workload(f"of-{name}", name, 1)
            run.push(one._replace(pod_sets=(PodSet("main", 1, None, asked, NodeNeeds()),)), 0)
        assert next(one.head.queued.uid for one in run.cycle(0).entries) == first


def test_once_a_cycle_has_ended_nothing_more_is_decided() -> None:
    specs = [NodeSpec(name, None, {CPU0: Quota(5)}) for name in "abc"]
    run = Scheduling(
        [ClusterQueue(node, GROUPS) for node in quota_tree(specs).queues.values()], (), Settings(block_admission=True)
    )
    for at, (name, cpu) in enumerate((("a", 5), ("b", 5), ("c", 6))):
        run.push(workload(f"of-{name}", name, cpu, created_s=at), 0)
    waits = "WaitingForPodsReady"
    assert became(run.cycle(0).entries) == [("of-a", "assumed"), ("of-b", waits), ("of-c", waits)]


def test_a_head_is_tried_for_the_first_time_in_a_namespace_that_matches_unless_stated_otherwise() -> None:
    run = alone(5)
    head = Head(Queued("w", 0, 0), run.cluster("a", 0), [PodSet("main", 1, None, {"cpu": 4}, NodeNeeds())])
    assert head.namespace_matches
    assert not head.has_progress
    assert became(cycle([head], run.usage)) == [("w", "assumed")]
