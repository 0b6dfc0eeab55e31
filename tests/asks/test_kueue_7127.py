"""Which running workloads may lose their quota is known before: what is borrowed, and who could reclaim it."""

from slacktide.streams.decisions.queue.amount import FlavorResource
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import NodeSpec, Quota, quota_tree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.risk import risks
from slacktide.streams.decisions.queue.scheduling import ClusterQueue
from slacktide.streams.decisions.queue.victims import Holder, Preemption

CPU = FlavorResource("f", "cpu")


def test_a_borrower_is_at_risk_from_the_lender_and_a_lender_from_nobody() -> None:
    tree = quota_tree([NodeSpec(name, "c", {CPU: Quota(4)}) for name in ("borrows", "lends")])
    holders = [
        Holder(Queued(name, 0, 0), tree.queues[name], frozenset({CPU}), {CPU: cpu}, 0)
        for name, cpu in (("borrows", 6), ("lends", 2))
    ]
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    queues = [ClusterQueue(node, policies=Preemption("Never", "Any")) for node in tree.queues.values()]
    borrower, lender = risks(queues, holders, usage)
    assert (borrower.borrowed[CPU].amount_max, borrower.borrowed[CPU].lender) == (2, "c")
    assert borrower.reclaimers == {CPU: ("lends",)}
    assert (lender.borrowed, lender.reclaimers) == ({}, {})
