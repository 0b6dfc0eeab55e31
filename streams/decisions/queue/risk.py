"""Which workloads that hold quota may lose it: how much of it is borrowed, from where, and who could take it back.

The rules of preemption run backwards: a ClusterQueue could reclaim what a workload of the highest priority, waiting
for the longest time, would preempt there for a little more than the ClusterQueue uses.
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
    """What of a workload's usage its ClusterQueue may have borrowed."""

    amount_max: int
    """The whole of what its ClusterQueue borrows, up to what the workload uses."""
    lender: str
    """The lowest cohort whose quota covers what is used below it, else the root."""


class Risk(NamedTuple):
    """A workload that may lose its quota."""

    uid: str
    borrowed: Mapping[FlavorResource, Borrowed]
    reclaimers: Mapping[FlavorResource, tuple[str, ...]]
    """ClusterQueues that could preempt it for more of that, its own included, by name."""


def risks(
    queues: Sequence[ClusterQueue], holders: Iterable[Holder], usage: QuotaUsage, *, fair_sharing: bool = False
) -> list[Risk]:
    """One for each workload, in the order given."""
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
