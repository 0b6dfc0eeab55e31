"""Where the queue may decide better than the reference, beside the mode that decides as it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.assign import Assignment, Cluster, Fungibility, Group, PodSet, assign
from slacktide.streams.decisions.queue.cycle import Eviction, Party
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds
from slacktide.streams.decisions.queue.job import PriorityClass, job_priority
from slacktide.streams.decisions.queue.missing import wait
from slacktide.streams.decisions.queue.pods_ready import PodsReadyConfig, backoff_s
from slacktide.streams.decisions.queue.preempt import Holder, Preemption, Preemptor, candidates, targets
from slacktide.streams.decisions.queue.preempt_fair import fair_targets
from slacktide.streams.decisions.queue.queue_order import Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, quota_tree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Cycle, Scheduling, Settings, Workload

CPU, GPU, PODS = (FlavorResource("f", name) for name in ("cpu", "example.com/gpu", "pods"))
LOWER = Preemption("LowerPriority", "Any")


def tree_of(*queues, cohort=()):
    return quota_tree(queues, [NodeSpec("c", quotas=dict(cohort))] if cohort else [])


def holders_of(node, *used, of=CPU, priority=0) -> list[Holder]:
    return [
        Holder(Queued(f"h{at}", priority, 0), node, frozenset({of}), {of: each}, 100 - at)
        for at, each in enumerate(used)
    ]


def usage_of(holders) -> QuotaUsage:
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    return usage


def chosen(preemptor: Preemptor, holders, *, fair=False) -> list[str]:
    usage = usage_of(holders)
    if fair:
        found = fair_targets(preemptor, LOWER, holders, usage)
    else:
        found = targets(preemptor, LOWER, candidates(preemptor, LOWER, holders, usage), usage)
    return [one.holder.queued.uid for one in found]


@pytest.mark.parametrize("fair", [False, True])
def test_fewer_victims_are_chosen_where_fewer_suffice(fair) -> None:
    """Of 1, 1, 2 and 4 the reference spares the 2 and needs three; without both 1s two suffice."""
    node = tree_of(NodeSpec("a", quotas={CPU: Quota(8)})).queues["a"]
    holders = holders_of(node, 1, 1, 2, 4)
    preemptor = Preemptor(Queued("p", 1, 0), node, {CPU: 6}, frozenset({CPU}))

    assert sorted(chosen(preemptor, holders, fair=fair)) == ["h0", "h1", "h3"]
    assert chosen(preemptor._replace(corrected=True), holders, fair=fair) == ["h2", "h3"]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 12), st.booleans())
def test_no_victim_of_a_corrected_choice_can_be_spared_and_there_are_no_more_than_the_references(used, asked, fair):
    node = tree_of(NodeSpec("a", quotas={CPU: Quota(sum(used))})).queues["a"]
    holders = holders_of(node, *used)
    preemptor = Preemptor(Queued("p", 1, 0), node, {CPU: asked}, frozenset({CPU}))
    found = chosen(preemptor._replace(corrected=True), holders, fair=fair)
    reference = chosen(preemptor, holders, fair=fair)

    assert bool(found) == bool(reference)
    assert len(found) <= len(reference)
    freed = {one.queued.uid: one.usage[CPU] for one in holders if one.queued.uid in found}
    assert all(sum(freed.values()) - each < asked for each in freed.values())


@pytest.mark.parametrize("fair", [False, True])
def test_the_choice_of_the_cycle_before_is_kept_while_it_suffices(fair) -> None:
    node = tree_of(NodeSpec("a", quotas={CPU: Quota(6)})).queues["a"]
    holders = holders_of(node, 2, 2, 2)
    preemptor = Preemptor(Queued("p", 1, 0), node, {CPU: 2}, frozenset({CPU}), corrected=True)

    assert chosen(preemptor, holders, fair=fair) == ["h0"]
    kept = preemptor._replace(chosen_before={"h2": "InClusterQueue"})
    assert chosen(kept, holders, fair=fair) == ["h2"]
    assert chosen(kept._replace(request={CPU: 4}), holders, fair=fair) == ["h0", "h1"]
    assert chosen(preemptor._replace(chosen_before={"h2": "x", "gone": "x"}), holders, fair=fair) == ["h0"]


def assigned(tree, holders, pod_sets, groups, **changed) -> Assignment:
    """By a workload of ClusterQueue ``a`` with priority 1."""
    cluster = Cluster(tree.queues["a"], groups, {}, Fungibility(), LOWER, holders, usage_of(holders))
    return assign(Queued("w", 1, 0), pod_sets, cluster._replace(**changed))


def test_a_resource_that_borrows_does_not_hide_another_that_has_to_preempt() -> None:
    """CPU fits only by borrowing; a GPU is there but another workload of the same queue has it."""
    tree = tree_of(NodeSpec("a", "c", {GPU: Quota(1, 0)}), cohort={CPU: Quota(4)}.items())
    holders = holders_of(tree.queues["a"], 1, of=GPU)
    groups = (Group(frozenset({"cpu", "example.com/gpu"}), ("f",)),)
    pod_sets = [PodSet("main", 1, None, {"cpu": 1, "example.com/gpu": 1}, NodeNeeds())]
    least = Fungibility(borrow_least=True)

    assert assigned(tree, holders, pod_sets, groups, fungibility=least).mode == "Fit"
    done = assigned(tree, holders, pod_sets, groups, fungibility=least, corrected=True)
    assert (done.mode, done.height) == ("Preempt", 1)
    assert [one.holder.queued.uid for one in done.targets] == ["h0"]


def test_victims_are_chosen_by_pods_too() -> None:
    tree = tree_of(NodeSpec("a", quotas={CPU: Quota(100), PODS: Quota(3)}))
    holders = holders_of(tree.queues["a"], 1, 1, 1, of=PODS)
    groups = (Group(frozenset({"cpu", "pods"}), ("f",)),)
    pod_sets = [PodSet("main", 2, None, {"cpu": 1}, NodeNeeds())]

    assert len(assigned(tree, holders, pod_sets, groups).targets) == 1
    assert len(assigned(tree, holders, pod_sets, groups, corrected=True).targets) == 2


def test_a_pod_set_that_asks_for_nothing_that_is_covered_does_not_end_the_assignment() -> None:
    tree = tree_of(NodeSpec("a", quotas={CPU: Quota(4)}))
    groups = (Group(frozenset({"cpu"}), ("f",)),)
    pod_sets = [PodSet("zero", 1, None, {"x": 0}, NodeNeeds()), PodSet("main", 1, None, {"cpu": 1}, NodeNeeds())]

    assert [one.name for one in assigned(tree, [], pod_sets, groups).pod_sets] == ["zero"]
    done = assigned(tree, [], pod_sets, groups, corrected=True)
    assert [one.name for one in done.pod_sets] == ["zero", "main"]
    assert done.usage() == {CPU: 1}
    too_much = [pod_sets[0], pod_sets[1]._replace(requests={"cpu": 5}), pod_sets[0]]
    done = assigned(tree, [], too_much, groups, corrected=True)
    assert (done.mode, [one.name for one in done.pod_sets]) == ("NoFit", ["zero", "main"])


def test_how_many_victims_were_saved_is_reported() -> None:
    tree = tree_of(NodeSpec("a", quotas={CPU: Quota(8)}))
    holders = holders_of(tree.queues["a"], 1, 1, 2, 4)
    groups = (Group(frozenset({"cpu"}), ("f",)),)
    pod_sets = [PodSet("main", 1, None, {"cpu": 6}, NodeNeeds())]

    assert assigned(tree, holders, pod_sets, groups).targets_saved_count == 0
    assert assigned(tree, holders, pod_sets, groups, corrected=True).targets_saved_count == 1


def cpu(uid, queue, amount, *, priority=0, created_s=0) -> Workload:
    pod_sets = (PodSet("main", 1, None, {"cpu": amount}, NodeNeeds()),)
    return Workload(Pending(Queued(uid, priority, created_s), pod_sets=amount), queue, pod_sets)


def state(tree, *, holders=(), strategy="BestEffortFIFO", **settings) -> Scheduling:
    groups = (Group(frozenset({"cpu"}), ("f",)),)
    queues = [ClusterQueue(node, groups, policies=LOWER, strategy=strategy) for node in tree.queues.values()]
    return Scheduling(queues, holders, Settings(**settings))


def became(done: Cycle) -> list[tuple[str, str]]:
    return [(one.head.queued.uid, one.requeue_reason or one.status) for one in done.entries]


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_what_can_never_be_admitted_is_tried_again_only_when_quotas_or_flavors_change(strategy) -> None:
    tree = tree_of(NodeSpec("a", quotas={CPU: Quota(4)}))
    run = state(tree, strategy=strategy, corrected=True)
    run.push(cpu("large", "a", 5), 0)
    run.push(cpu("small", "a", 4, created_s=1), 0)
    assert became(run.cycle(0)) == [("large", "ExceedsMaxQuota")]
    assert became(run.cycle(0)) == [("small", "assumed")]
    run.delete("small", 0)
    assert [one.uid for one in run.waiting["a"].inadmissible] == ["large"]
    assert run.waiting["a"].retry(0) == 0
    assert run.waiting["a"].retry(0, changed=True) == 1


def test_what_only_waits_for_others_does_not_exceed_the_quota() -> None:
    run = state(tree_of(NodeSpec("a", quotas={CPU: Quota(4)})), corrected=True)
    run.push(cpu("first", "a", 4), 0)
    run.push(cpu("then", "a", 4, created_s=1), 0)
    run.cycle(0)
    assert became(run.cycle(0)) == [("then", "PreemptionNoCandidates")]


def test_a_large_workload_that_changed_is_tried_again() -> None:
    run = state(tree_of(NodeSpec("a", quotas={CPU: Quota(4)})), corrected=True)
    run.push(cpu("w", "a", 5), 0)
    run.cycle(0)
    run.push(cpu("w", "a", 4), 0)
    assert became(run.cycle(0)) == [("w", "assumed")]


def test_the_reference_tries_it_again_at_every_retry() -> None:
    run = state(tree_of(NodeSpec("a", quotas={CPU: Quota(4)})))
    run.push(cpu("large", "a", 5), 0)
    assert became(run.cycle(0)) == [("large", "NoFit")]
    assert run.waiting["a"].retry(0) == 1


def test_a_queue_admits_several_workloads_between_two_events_as_repeated_cycles_would() -> None:
    tree = tree_of(NodeSpec("a", quotas={CPU: Quota(4)}))
    at_once, repeated = state(tree), state(tree)
    for run in (at_once, repeated):
        for at in range(6):
            run.push(cpu(f"w{at}", "a", 1, created_s=at), 0)
    done = list(at_once.cycles(0))
    assert [became(one)[0] for one in done] == [
        *((f"w{at}", "assumed") for at in range(4)),
        ("w4", "PreemptionNoCandidates"),
    ]
    assert [became(repeated.cycle(0)) for _ in done] == [became(one) for one in done]
    assert list(at_once.cycles(0)) == []


def test_while_pods_are_waited_for_the_cycle_ends_and_its_workloads_stay_ahead() -> None:
    tree = quota_tree([NodeSpec(name, None, {CPU: Quota(9)}) for name in "abc"])
    run = state(tree, block_admission=True)
    for at, name in enumerate("abc"):
        run.push(cpu(f"of-{name}", name, 1, created_s=at), 0)
    waits = "WaitingForPodsReady"
    assert became(run.cycle(0)) == [("of-a", "assumed"), ("of-b", waits), ("of-c", waits)]
    assert became(run.cycle(0)) == [("of-b", waits), ("of-c", waits)]
    run.pods_ready("of-a")
    assert became(run.cycle(0)) == [("of-b", "assumed"), ("of-c", waits)]
    run.pods_ready("of-a", ready=False)
    run.delete("of-b", 0)
    assert became(run.cycle(0)) == [("of-c", waits)]
    run.delete("of-a", 0)
    assert became(run.cycle(0)) == [("of-c", "assumed")]


def test_a_cycle_that_ended_keeps_what_was_tried_before() -> None:
    tree = quota_tree([NodeSpec(name, None, {CPU: Quota(9)}) for name in "ab"])
    run = state(tree, block_admission=True)
    run.push(cpu("of-a", "a", 1), 0)
    run.push(cpu("of-b", "b", 1), 0)
    ended = run.cycle(0).entries[1]
    assert ended.assignment is None
    assert not ended.keeps_progress


def test_the_first_backoff_is_held_to_the_maximum() -> None:
    config = PodsReadyConfig(backoff_base_s=100, backoff_max_s=30)
    assert backoff_s(1, config) == 100
    assert [backoff_s(count, config._replace(corrected=True)) for count in (1, 2)] == [30, 30]
    assert backoff_s(1, PodsReadyConfig(backoff_base_s=100, backoff_max_s=0, corrected=True)) == 100


def test_several_global_defaults_are_named() -> None:
    classes = [PriorityClass("b", 2, True), PriorityClass("a", 5, True), PriorityClass("c", 1)]
    assert job_priority("", "", {}, classes).global_defaults == ("a", "b")
    assert job_priority("", "", {}, classes[1:]).global_defaults == ()
    assert job_priority("", "c", {}, classes).global_defaults == ()


def sharing():
    """Queue ``a`` borrows all of what ``b`` has."""
    tree = tree_of(
        NodeSpec("a", "c", {CPU: Quota(2)}), NodeSpec("b", "c", {CPU: Quota(2)}), cohort={CPU: Quota()}.items()
    )
    return tree, holders_of(tree.queues["a"], 1, 3)


def test_each_eviction_names_both_sides_and_their_shares() -> None:
    tree, holders = sharing()
    run = state(tree, holders=holders)
    run.push(cpu("p", "b", 2, priority=3), 0)
    done = run.cycle(0)
    assert done.evictions == [
        Eviction(
            1,
            Party("p", "b", 3, {CPU: 2}, 0.0, 0.0),
            Party("h1", "a", 0, {CPU: 3}, 500.0, 0.0),
            "InCohortReclamation",
        )
    ]
    assert run.cycle(0).number == 2


def test_a_skipped_preemptor_evicts_nobody_and_no_priority_is_0() -> None:
    tree = tree_of(*(NodeSpec(name, "c", {CPU: Quota(2)}) for name in "abd"), cohort={CPU: Quota()}.items())
    run = state(tree, holders=holders_of(tree.queues["a"], 6, priority=2))
    for at, name in enumerate("bd"):
        run.push(cpu(f"of-{name}", name, 2, priority=None, created_s=at), 0)
    done = run.cycle(0)
    assert [one.status for one in done.entries].count("skipped") == 1
    assert [(one.preemptor.uid, one.preemptor.priority, one.victim.priority) for one in done.evictions] == [
        ("of-b", 0, 2)
    ]


def test_the_wait_is_an_interval_around_what_the_rate_lets_expect() -> None:
    done = wait(10, 60)
    assert done.state == "interval"
    assert done.least_s < 10 * 60 < done.most_s
    assert (done.least_s, done.most_s) == (314, 1017)
    assert wait(11, 60).most_s > done.most_s
    assert wait(10, 600).most_s < done.most_s
    assert wait(10, 60, window_s=7200).most_s > done.most_s


def test_there_is_no_interval_while_quota_is_waited_for_or_nothing_was_admitted() -> None:
    assert wait(1, 0).state == "unknown"
    assert wait(1, 9, blocked_by="NoFit").state == "unknown"
    assert "NoFit" in wait(1, 9, blocked_by="NoFit").reason
    assert wait(1, 9, blocked_by="ExceedsMaxQuota").state == "never"


@given(st.integers(1, 50_000), st.integers(1, 100_000))
def test_an_interval_has_a_least_and_a_most(position, admitted) -> None:
    done = wait(position, admitted)
    assert 0 <= done.least_s < done.most_s


@pytest.mark.parametrize("corrected", [False, True])
def test_nothing_is_admitted_on_quota_that_a_victim_of_the_cycle_still_holds(corrected) -> None:
    """Of 10, a victim holds 8 until it has stopped: of two that ask for 2, the reference admits both at once."""
    tree = tree_of(NodeSpec("a", "c", {CPU: Quota(10)}), NodeSpec("d", "c"), NodeSpec("e", "c"))
    run = state(tree, holders=holders_of(tree.queues["a"], 8), corrected=corrected)
    for one in (cpu("p", "a", 3, priority=1), cpu("q", "d", 2), cpu("r", "e", 2)):
        run.push(one, 0)
    done = run.cycle(0)

    assert [one.victim.uid for one in done.evictions] == ["h0"]
    assert run.usage.available(tree.queues["a"], CPU) == (0 if corrected else -2)
