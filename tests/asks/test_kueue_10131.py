"""Who is preempted is not left to chance: the same state has the same victims, in each cycle and in each order."""

import itertools

from slacktide.streams.decisions.queue.preempt import Holder, Preemption, Preemptor
from slacktide.streams.decisions.queue.preempt_fair import fair_targets
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaUsage, quota_tree

CPU = FlavorResource("f", "cpu")


def test_with_equal_shares_the_victims_are_the_same_in_whatever_order_workloads_are_known() -> None:
    tree = quota_tree([NodeSpec(name, "c", {CPU: Quota(2)}) for name in ("me", "x", "y", "z")])
    holders = [
        Holder(Queued(f"{name}{at}", 0, 0), tree.queues[name], frozenset({CPU}), {CPU: 1}, 100)
        for name in ("x", "y")
        for at in range(4)
    ]
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    preemptor = Preemptor(Queued("p", 0, 0), tree.queues["me"], {CPU: 2}, frozenset({CPU}), corrected=True)
    chosen = {
        tuple(one.holder.queued.uid for one in fair_targets(preemptor, Preemption("Never", "Any"), order, usage))
        for order in itertools.islice(itertools.permutations(holders), 0, 40_320, 997)
    }
    assert chosen == {("x0", "y0")}
