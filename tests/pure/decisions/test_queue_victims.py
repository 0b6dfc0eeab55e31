"""Whom a workload preempts, where the rule turns on one amount or one cohort."""

import pytest

from slacktide.streams.decisions.queue.preempt import (
    NOT_BORROWING,
    RECLAIM,
    Holder,
    Preemption,
    Preemptor,
    candidates,
    targets,
)
from slacktide.streams.decisions.queue.preempt_fair import fair_targets
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaNode,
    QuotaTree,
    quota_tree,
)
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage

CPU, GPU = FlavorResource("f", "cpu"), FlavorResource("f", "example.com/gpu")
LOWER = Preemption("LowerPriority", "Any")


def holder(uid: str, node: QuotaNode, amount: int, *, of: FlavorResource = CPU, at_s: int = 0) -> Holder:
    return Holder(Queued(uid, 0, 0), node, frozenset({of}), {of: amount}, at_s)


def usage_of(holders: list[Holder]) -> QuotaUsage:
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    return usage


def chosen(node: QuotaNode, amount: int, *holders: Holder, before: str = "") -> list[str]:
    """By a workload of priority 1; ``before``: its choice of the cycle before."""
    preemptor = Preemptor(Queued("p", 1, 0), node, {CPU: amount}, frozenset({CPU}), corrected=True)
    preemptor = preemptor._replace(chosen_before={before: "x"} if before else {})
    usage = usage_of(list(holders))
    found = targets(preemptor, LOWER, candidates(preemptor, LOWER, holders, usage), usage)
    return [one.holder.queued.uid for one in found]


def inner(*, cpu: Quota, inner_cpu: int) -> QuotaTree:
    """ClusterQueue b in a cohort of its own, which with a, that has nothing, is below the root."""
    queues = [NodeSpec("a", "r", {CPU: Quota(0)}), NodeSpec("b", "c", {CPU: cpu})]
    return quota_tree(queues, [NodeSpec("r"), NodeSpec("c", "r", {CPU: Quota(inner_cpu)})])


def test_a_choice_of_its_own_queue_is_kept_although_the_queue_borrows() -> None:
    tree = quota_tree([NodeSpec("a", "c", {CPU: Quota(2)})], [NodeSpec("c", quotas={CPU: Quota(4)})])
    holders = [holder(f"h{at}", tree.queues["a"], 2, at_s=at) for at in range(3)]
    assert chosen(tree.queues["a"], 2, *holders) == ["h2"], "the newest"
    assert chosen(tree.queues["a"], 2, *holders, before="h0") == ["h0"]


def test_with_fair_sharing_too_a_choice_is_kept_although_the_queue_borrows() -> None:
    tree = quota_tree([NodeSpec("a", "c", {CPU: Quota(2)})], [NodeSpec("c", quotas={CPU: Quota(4)})])
    holders = [holder(f"h{at}", tree.queues["a"], 2, at_s=at) for at in range(3)]
    preemptor = Preemptor(Queued("p", 1, 0), tree.queues["a"], {CPU: 2}, frozenset({CPU}), corrected=True)
    for before, found in (({}, "h2"), ({"h0": "x"}, "h0")):
        [one] = fair_targets(preemptor._replace(chosen_before=before), LOWER, holders, usage_of(holders))
        assert one.holder.queued.uid == found


def test_a_choice_that_is_reclaimed_is_kept_although_the_queue_borrows_within_its_cohort() -> None:
    tree = inner(cpu=Quota(0), inner_cpu=2)
    holders = [holder(f"h{at}", tree.queues["a"], 1, at_s=at) for at in range(2)]
    assert chosen(tree.queues["b"], 1, *holders) == ["h1"], "the newest"
    assert chosen(tree.queues["b"], 1, *holders, before="h0") == ["h0"]


def test_where_something_is_reclaimed_it_borrows_rather_than_preempt_its_own() -> None:
    tree = inner(cpu=Quota(2), inner_cpu=1)
    assert chosen(tree.queues["b"], 2, holder("x", tree.queues["a"], 2), holder("own", tree.queues["b"], 1)) == ["x"]


def test_where_nothing_is_reclaimed_it_may_still_borrow_what_its_own_give() -> None:
    queues = [NodeSpec("a", "c", {CPU: Quota(0)}), NodeSpec("b", "c", {CPU: Quota(2)})]
    tree = quota_tree(queues, [NodeSpec("c", quotas={CPU: Quota(3)})])
    assert chosen(tree.queues["b"], 4, holder("y", tree.queues["a"], 1), holder("own", tree.queues["b"], 1)) == ["own"]


@pytest.mark.parametrize(("beside", "kind"), [(0, RECLAIM), (1, NOT_BORROWING)])
def test_what_a_queue_has_for_itself_is_not_asked_of_its_cohort(beside: int, kind: str) -> None:
    """CPU is the queue's own, and more than it asks for; ``beside``: what another queue of its cohort took of CPU."""
    queues = [
        NodeSpec("a", "r", {GPU: Quota(0)}),
        NodeSpec("b", "c", {CPU: Quota(5, lending_limit=0), GPU: Quota(0)}),
        NodeSpec("d", "c", {CPU: Quota(0)}),
    ]
    cohorts = [NodeSpec("r", quotas={CPU: Quota(1)}), NodeSpec("c", "r", {GPU: Quota(1)})]
    tree = quota_tree(queues, cohorts)
    holders = [holder("x", tree.queues["a"], 1, of=GPU), holder("y", tree.queues["d"], beside)]
    preemptor = Preemptor(Queued("p", 1, 0), tree.queues["b"], {CPU: 1, GPU: 1}, frozenset({GPU}))
    assert [one.kind for one in candidates(preemptor, LOWER, holders, usage_of(holders))] == [kind]


@pytest.mark.parametrize(("used", "asked", "found"), [((1, 1, 2), 3, ["h0", "h2"]), ((2, 1, 1, 4), 6, ["h0", "h3"])])
def test_of_two_choices_the_smaller_counts_and_of_equal_ones_the_references(
    used: tuple[int, ...], asked: int, found: list[str]
) -> None:
    """The reference offers the last back first; the first offered first would leave others, or more."""
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(sum(used))})]).queues["a"]
    holders = [holder(f"h{at}", node, amount, at_s=9 - at) for at, amount in enumerate(used)]
    assert chosen(node, asked, *holders) == found
