"""Which workloads may lose their quota: what they borrow, from whom, and who could take it back."""

import pytest

from slacktide.streams.decisions.queue.amount import FlavorResource
from slacktide.streams.decisions.queue.assign import Group
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import NodeSpec, Quota, quota_tree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.risk import Borrowed, Risk, risks
from slacktide.streams.decisions.queue.scheduling import ClusterQueue
from slacktide.streams.decisions.queue.victims import Holder, Preemption

CPU = FlavorResource("f", "cpu")
LOWER = Preemption("LowerPriority", "Any")


def risks_of(tree, *holders: Holder, policies=LOWER) -> dict[str, Risk]:
    groups = (Group(frozenset({"cpu"}), ("f",)),)
    queues = [ClusterQueue(node, groups, policies=policies) for node in tree.queues.values()]
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    return {one.uid: one for one in risks(queues, holders, usage)}


def held(uid, node, amount, *, priority=0) -> Holder:
    return Holder(Queued(uid, priority, 0), node, frozenset({CPU}), {CPU: amount}, 0)


def test_of_two_that_borrow_neither_reclaims_from_the_other() -> None:
    names = ("a", "b")
    tree = quota_tree([NodeSpec(name, "c", {CPU: Quota(1)}) for name in names], [NodeSpec("c", quotas={CPU: Quota(2)})])
    found = risks_of(tree, *(held(name, tree.queues[name], 2) for name in names))
    assert {uid: one.reclaimers[CPU] for uid, one in found.items()} == {"a": ("a",), "b": ("b",)}


def test_a_queue_that_uses_its_own_quota_reclaims_what_its_cohort_lends_further_up() -> None:
    """One is left in the inner cohort, and it is lent."""
    inner = [NodeSpec("r"), NodeSpec("c", "r", {CPU: Quota(1)})]
    tree = quota_tree([NodeSpec("a", "r", {CPU: Quota(1)}), NodeSpec("b", "c", {CPU: Quota(2)})], inner)
    found = risks_of(tree, held("x", tree.queues["a"], 2), held("y", tree.queues["b"], 2))
    assert found["x"].reclaimers == {CPU: ("a", "b")}


@pytest.mark.parametrize(("inner", "outer", "lender"), [(5, 0, "c"), (0, 5, "r")])
def test_the_lender_is_the_lowest_cohort_that_does_not_borrow_itself(inner, outer, lender) -> None:
    cohorts = [NodeSpec("r", quotas={CPU: Quota(outer)}), NodeSpec("c", "r", {CPU: Quota(inner)})]
    tree = quota_tree([NodeSpec("a", "c", {CPU: Quota(1)})], cohorts)
    assert risks_of(tree, held("x", tree.queues["a"], 3))["x"].borrowed == {CPU: Borrowed(2, lender)}


def test_the_highest_priority_is_safe_only_from_those_that_came_later() -> None:
    tree = quota_tree([NodeSpec("a", quotas={CPU: Quota(2)})])
    most = held("x", tree.queues["a"], 2, priority=2**31 - 1)
    assert risks_of(tree, most)["x"].reclaimers == {}
    newer = Preemption("LowerOrNewerEqualPriority")
    assert risks_of(tree, most, policies=newer)["x"].reclaimers == {CPU: ("a",)}
