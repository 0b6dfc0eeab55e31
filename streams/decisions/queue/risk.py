"""Finds admitted workloads that may lose quota: the borrowed amount, the lender, and who may reclaim it.

It applies the preemption rules in reverse. A ClusterQueue may reclaim what its highest-priority, longest-waiting
workload would preempt for a little more than its usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.bounds import INT32_MAX, INT64_MAX
from slacktide.streams.decisions.queue.amount import FlavorResource, minus
from slacktide.streams.decisions.queue.preempt import NOT_BORROWING, candidates
from slacktide.streams.decisions.queue.preempt_fair import fair_candidates
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.scheduling import ClusterQueue
from slacktide.streams.decisions.queue.victims import Holder, Preemptor

AGES_AGO_S = -INT64_MAX


class Borrowed(NamedTuple):
    """The part of a workload's usage that its ClusterQueue may have borrowed."""

    amount_max: int
    """All that its ClusterQueue borrows, at most the workload's usage."""
    lender: str
    """The lowest cohort whose quota covers the usage below it, else the root."""


class Risk(NamedTuple):
    """A workload that may lose its quota."""

    uid: str
    borrowed: Mapping[FlavorResource, Borrowed]
    reclaimers: Mapping[FlavorResource, tuple[str, ...]]
    """ClusterQueues that may preempt it for more of the resource, including its own, by name."""


def risks(
    queues: Sequence[ClusterQueue], holders: Iterable[Holder], usage: QuotaUsage, *, fair_sharing: bool = False
) -> list[Risk]:
    """Return the risk of each workload, in the given order."""
    holders = list(holders)
    reclaimers: dict[tuple[str, FlavorResource], list[str]] = {}
    for queue in sorted(queues, key=lambda one: one.node.name):
        for of in queue.node.quotas:
            for one in _candidates(queue, of, holders, usage, fair_sharing=fair_sharing):
                reclaimers.setdefault((one.queued.uid, of), []).append(queue.node.name)
    return [
        Risk(
            one.queued.uid,
            {of: borrowed for of in sorted(one.usage) if (borrowed := _borrowed(one, of, usage)).amount_max > 0},
            {of: tuple(names) for of in sorted(one.assigned) if (names := reclaimers.get((one.queued.uid, of)))},
        )
        for one in holders
    ]


def _candidates(
    queue: ClusterQueue, of: FlavorResource, holders: list[Holder], usage: QuotaUsage, *, fair_sharing: bool
) -> list[Holder]:
    first = Preemptor(Queued("", INT32_MAX, AGES_AGO_S), queue.node, {of: 1}, frozenset({of}))
    if fair_sharing:
        return list(fair_candidates(first, queue.policies, holders, usage))
    under = queue.node.quota(of).nominal > usage.usage(queue.node, of)
    found = candidates(first, queue.policies, holders, usage)
    return [one.holder for one in found if under or one.kind != NOT_BORROWING]


def _borrowed(one: Holder, of: FlavorResource, usage: QuotaUsage) -> Borrowed:
    over = minus(usage.usage(one.queue, of), one.queue.quota(of).nominal)
    lender = one.queue
    for lender in one.queue.ancestors():
        if not usage.borrowing(lender, of):
            break
    return Borrowed(min(one.usage[of], over), lender.name)
