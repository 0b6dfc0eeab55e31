"""Which flavor is chosen, with how many pods a workload starts, and whom it preempts, where the rule turns on one."""

import pytest

from slacktide.streams.decisions.queue import assign as rules
from slacktide.streams.decisions.queue.assign import (
    Assignment,
    Cluster,
    Fungibility,
    Group,
    PodSet,
    assign,
    exceeds_max_quota,
)
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds
from slacktide.streams.decisions.queue.preempt import Holder, Preemption, targets
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaTree, quota_tree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage

CPU, FAST, TPU = FlavorResource("f", "cpu"), FlavorResource("fast", "cpu"), FlavorResource("f", "tpu")
BOTH = (Group(frozenset({"cpu"}), ("f", "fast")),)
ONE = (Group(frozenset({"cpu", "tpu"}), ("f",)),)
WORKLOAD = Queued("w", 1, 0)


def pods(count=1, least=None, **requests) -> PodSet:
    return PodSet("main", count, least, requests, NodeNeeds())


def holder(uid, node, amount, of=CPU) -> Holder:
    return Holder(Queued(uid, 0, 0), node, frozenset({of}), {of: amount}, 0)


def cluster(tree: QuotaTree, groups=BOTH, holders=(), *, policies=Preemption(), **changed) -> Cluster:  # noqa: B008
    """As ClusterQueue ``a`` sees it."""
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    return Cluster(tree.queues["a"], groups, {}, Fungibility(), policies, holders, usage)._replace(**changed)


def alone(**quotas) -> QuotaTree:
    return quota_tree([NodeSpec("a", quotas={FlavorResource("f", name): Quota(each) for name, each in quotas.items()})])


def flavor(done: Assignment) -> tuple[str, str]:
    return done.mode, done.pod_sets[0].flavors["cpu"].flavor


@pytest.mark.parametrize("quota", range(14))
def test_a_workload_starts_with_the_most_pods_that_fit(quota) -> None:
    done = assign(WORKLOAD, [pods(6, 2, cpu=2)], cluster(alone(cpu=quota)))
    fits = quota // 2
    assert (done.works, done.pod_sets[0].pods) == ((True, min(6, fits)) if fits >= 2 else (False, 6))


@pytest.mark.parametrize(("quota", "counts"), [(12, [6, 6]), (11, [6, 5]), (8, [6, 2]), (7, [6, 1]), (6, None)])
def test_pod_sets_shrink_by_the_same_part_of_what_each_can_spare(quota, counts) -> None:
    done = assign(WORKLOAD, [pods(6, None, cpu=1), pods(6, 1, cpu=1)], cluster(alone(cpu=quota)))
    assert done.works == (counts is not None)
    assert [one.pods for one in done.pod_sets] == (counts or [6, 6])
    done = assign(WORKLOAD, [pods(6, 2, cpu=1), pods(9, 1, cpu=1)], cluster(alone(cpu=9)))
    assert [one.pods for one in done.pod_sets] == [4, 5]


def test_a_minimum_above_the_count_asks_for_no_more_and_no_pods_always_fit() -> None:
    assert [assign(WORKLOAD, [pods(2, 4, cpu=2)], cluster(alone(cpu=each))).works for each in (3, 4)] == [False, True]
    done = assign(WORKLOAD, [], cluster(alone(cpu=1)))
    assert (done.mode, done.works, done.height) == ("Fit", True, 0)


def lending() -> QuotaTree:
    """Of f the cohort has 4, of fast ClusterQueue a."""
    queues = [NodeSpec("a", "c", {CPU: Quota(0), FAST: Quota(4)}), NodeSpec("b", "c")]
    return quota_tree(queues, [NodeSpec("c", quotas={CPU: Quota(4)})])


def test_by_default_it_borrows_before_it_tries_the_next_flavor_and_tries_that_before_it_preempts() -> None:
    tree = lending()
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(tree))) == ("Fit", "f")
    asked = Fungibility(next_when_borrowing=True)
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(tree, fungibility=asked))) == ("Fit", "fast")
    own = quota_tree([NodeSpec("a", quotas={CPU: Quota(4), FAST: Quota(4)})])
    lower = {"holders": [holder("h", own.queues["a"], 4)], "policies": Preemption("LowerPriority")}
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(own, **lower))) == ("Fit", "fast")
    at_once = Fungibility(next_when_preempting=False)
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(own, **lower, fungibility=at_once))) == ("Preempt", "f")


def test_by_default_it_borrows_rather_than_preempt_its_own() -> None:
    tree = lending()
    held = {"holders": [holder("h", tree.queues["a"], 4, FAST)], "policies": Preemption("LowerPriority")}
    asked = Fungibility(next_when_borrowing=True)
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(tree, **held, fungibility=asked))) == ("Fit", "f")
    least = asked._replace(borrow_least=True)
    assert flavor(assign(WORKLOAD, [pods(cpu=2)], cluster(tree, **held, fungibility=least))) == ("Preempt", "fast")


@pytest.mark.parametrize("borrow_least", [False, True])
def test_of_flavors_that_have_to_be_borrowed_the_nearer_one_is_chosen(borrow_least) -> None:
    cohorts = [NodeSpec("r", quotas={CPU: Quota(4)}), NodeSpec("c", "r", {FAST: Quota(4)})]
    tree = quota_tree([NodeSpec("a", "c", {CPU: Quota(0), FAST: Quota(0)})], cohorts)
    borrows = Fungibility(next_when_borrowing=True, borrow_least=borrow_least)
    done = assign(WORKLOAD, [pods(cpu=2)], cluster(tree, fungibility=borrows))
    assert (flavor(done), done.height, done.pending_flavors) == (("Fit", "fast"), 1, False)


def test_what_fits_only_while_nobody_else_uses_it_does_not_exceed_the_quota() -> None:
    tree = lending()
    full = cluster(tree, ONE, [holder("h", tree.queues["b"], 4)])
    assert assign(WORKLOAD, [pods(cpu=4)], full).mode == "NoFit"
    assert not exceeds_max_quota(WORKLOAD, [pods(cpu=4)._replace(last_tried={"cpu": 0})], full)
    assert exceeds_max_quota(WORKLOAD, [pods(cpu=5)], full)


def test_only_with_fair_sharing_it_may_borrow_by_reclaiming_what_others_borrow() -> None:
    tree = quota_tree([NodeSpec("a", "c"), NodeSpec("b", "c")], [NodeSpec("c", quotas={CPU: Quota(4)})])
    held = {"holders": [holder("h", tree.queues["b"], 4)], "policies": Preemption("Never", "Any")}
    assert assign(WORKLOAD, [pods(cpu=1)], cluster(tree, ONE, **held)).mode == "NoFit"
    done = assign(WORKLOAD, [pods(cpu=1)], cluster(tree, ONE, **held, fair_sharing=True))
    assert [(one.holder.queued.uid, one.reason) for one in done.targets] == [("h", "InCohortFairSharing")]


def test_victims_are_chosen_by_each_resource_but_pods() -> None:
    tree = alone(cpu=9, tpu=4)
    held = [holder("h", tree.queues["a"], 1, TPU), holder("i", tree.queues["a"], 3, TPU)]
    lower = Preemption("LowerPriority")
    done = assign(WORKLOAD, [pods(cpu=1, tpu=4)], cluster(tree, ONE, held, policies=lower))
    assert sorted(one.holder.queued.uid for one in done.targets) == ["h", "i"]


def test_a_resource_that_no_group_covers_hides_no_other_behind_it() -> None:
    asked = PodSet("main", 1, None, {"apples": 0, "cpu": 1}, NodeNeeds())
    assert assign(WORKLOAD, [asked], cluster(alone(cpu=1), ONE)).usage() == {CPU: 1}
    assert assign(WORKLOAD, [asked], cluster(alone(cpu=0), ONE)).mode == "NoFit"


def test_each_group_gives_its_own_flavor_to_all_its_resources() -> None:
    groups = (Group(frozenset({"cpu", "memory"}), ("f",)), Group(frozenset({"tpu"}), ("fast",)))
    tpu = FlavorResource("fast", "tpu")
    tree = quota_tree([NodeSpec("a", quotas={of: Quota(2) for of in (CPU, FlavorResource("f", "memory"), tpu)})])
    done = assign(WORKLOAD, [pods(cpu=1, memory=1, tpu=2)], cluster(tree, groups))
    assert {name: each.flavor for name, each in done.pod_sets[0].flavors.items()} == {
        "cpu": "f",
        "memory": "f",
        "tpu": "fast",
    }


def test_a_corrected_choice_keeps_that_of_the_cycle_before_and_counts_whom_it_saved() -> None:
    tree = alone(cpu=4)
    held = [holder(f"h{at}", tree.queues["a"], 2) for at in range(2)]
    given = cluster(tree, ONE, held, policies=Preemption("LowerPriority"), chosen_before={"h1": "x"})

    def found(given) -> tuple:
        done = assign(WORKLOAD, [pods(cpu=2)], given)
        return tuple(one.holder.queued.uid for one in done.targets), done.targets_saved_count

    assert found(given) == (("h0",), 0)
    assert found(given._replace(corrected=True)) == (("h1",), 0)
    four = alone(cpu=8)
    held = [holder(f"h{at}", four.queues["a"], each) for at, each in enumerate((1, 1, 2, 4))]
    given = cluster(four, ONE, held, policies=Preemption("LowerPriority"), corrected=True)
    saved = [
        assign(WORKLOAD, [pods(cpu=6)], given._replace(compares=each)).targets_saved_count for each in (True, False)
    ]
    assert saved == [1, 0], "it is counted only where it is asked for"


def test_victims_of_the_same_request_are_searched_once(monkeypatch) -> None:
    searched: list[object] = []

    def counted(preemptor, *given):
        searched.append(preemptor.request)
        return targets(preemptor, *given)

    monkeypatch.setattr(rules, "targets", counted)
    tree = alone(cpu=4)
    given = cluster(tree, ONE, [holder("h", tree.queues["a"], 4)], policies=Preemption("LowerPriority"))
    assert assign(WORKLOAD, [pods(cpu=2)], given).works
    assert searched == [{CPU: 2}]
