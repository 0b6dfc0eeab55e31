"""Workloads that hold quota, as one that needs it looks at them: who may be preempted, and in which order.

Reading: kueue v0.19.2, pkg/scheduler/preemption/common (preemption_policy.go, ordering.go), preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource
from slacktide.streams.decisions.queue.queue_order import Queued, RequeuingTimestamp, queue_time_s
from slacktide.streams.decisions.queue.quota_tree import QuotaNode
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.room import PodGroup

Policy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]


class Preemption(NamedTuple):
    """Whom workloads of a ClusterQueue may preempt."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: bool = False
    """Also while their ClusterQueue borrows."""
    priority_max: int | None = None
    """Of those that may be preempted so."""


class Holder(NamedTuple):
    """A workload that holds quota."""

    queued: Queued
    queue: QuotaNode
    assigned: frozenset[FlavorResource]
    """What it was assigned, used or not."""
    usage: Mapping[FlavorResource, int]
    reserved_at_s: int | None = None
    """Since when it holds quota; None: since now."""
    pods: tuple[PodGroup, ...] = ()
    """Known where it matters on which nodes they have room."""


Holders = Iterable[Holder] | Mapping[QuotaNode, Iterable[Holder]]
"""All that hold quota; by their ClusterQueue where there are many, so that not all have to be looked at each time."""


def by_queue(holders: Holders) -> Mapping[QuotaNode, Iterable[Holder]]:
    """Those of each ClusterQueue."""
    if isinstance(holders, Mapping):
        return holders
    found: dict[QuotaNode, list[Holder]] = {}
    for one in holders:
        found.setdefault(one.queue, []).append(one)
    return found


class Preemptor(NamedTuple):
    """A workload that needs quota."""

    queued: Queued
    queue: QuotaNode
    request: Mapping[FlavorResource, int]
    """Amounts above 0."""
    needed: frozenset[FlavorResource]
    """What it has to preempt for."""
    now_s: int = 0
    requeuing: RequeuingTimestamp = "Eviction"
    corrected: bool = False
    """Victims are chosen better than the reference does, see ``spare``."""
    chosen_before: Mapping[str, str] = {}
    """Reasons of its targets of the cycle before, by uid; a corrected choice keeps them while they suffice."""

    def may_preempt(self, one: Holder, policy: Policy) -> bool:
        """Whether a policy lets it preempt a workload that holds what it needs."""
        if policy == "Never" or self.needed.isdisjoint(one.assigned):
            return False
        mine, other = self.queued.priority or 0, one.queued.priority or 0
        if policy == "Any" or mine > other:
            return True
        if policy != "LowerOrNewerEqualPriority" or mine != other:
            return False
        return queue_time_s(self.queued, self.requeuing) < queue_time_s(one.queued, self.requeuing)

    def order(self, one: Holder) -> tuple[bool, bool, int, int, str]:
        """Victims compare by it: evicted ones first, then other queues', low priorities, late reservations."""
        evicted = one.queued.evicted is not None and one.queued.evicted.status
        reserved_at_s = self.now_s if one.reserved_at_s is None else one.reserved_at_s
        return not evicted, one.queue is self.queue, one.queued.priority or 0, -reserved_at_s, one.queued.uid

    def fits(self, usage: QuotaUsage, *, borrowing: bool) -> bool:
        """Whether its request fits, with or without borrowing."""
        return all(
            usage.fits(self.queue, of, amount) and (borrowing or not usage.borrowing(self.queue, of, amount))
            for of, amount in self.request.items()
        )


class Target(NamedTuple):
    """A workload to preempt."""

    holder: Holder
    reason: str


def remove(usage: QuotaUsage, one: Holder) -> None:
    """Take off what a workload uses."""
    usage.book_all(one.queue, one.usage, -1)


def restore(usage: QuotaUsage, one: Holder) -> None:
    """Add it again."""
    usage.book_all(one.queue, one.usage)


def spare(targets: Sequence[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """The targets that are needed, in their order; the request fits once all of them are removed, as they are here.

    The reference offers victims back once, the last chosen first. Here they are also offered the first chosen first,
    and the smaller of the two results counts; of equal ones the reference's.
    """
    if not preemptor.corrected:
        return fill_back(targets, preemptor, usage, borrowing=borrowing)
    late = _needed(reversed(targets), preemptor, usage.copy(), borrowing=borrowing)
    early = _needed(targets, preemptor, usage, borrowing=borrowing)
    kept = early if len(early) < len(late) else late
    return [one for one in targets if one.holder.queued.uid in kept]


def kept_choice(tried: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """Of those that may be preempted the targets of the cycle before, as far as needed; nobody if they do not suffice.

    Args:
        tried: all that may be preempted now.
        preemptor: who needs quota, with its choice of the cycle before.
        usage: it is changed.
        borrowing: whether the preemptor may borrow.

    """
    again = [one for one in tried if one.holder.queued.uid in preemptor.chosen_before]
    if not again or len(again) < len(preemptor.chosen_before):
        return []
    for one in again:
        remove(usage, one.holder)
    return spare(again, preemptor, usage, borrowing=borrowing) if preemptor.fits(usage, borrowing=borrowing) else []


def _needed(targets: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> set[str]:
    """Uids of those without whom the request does not fit; each is offered back in turn."""
    kept = set()
    for one in targets:
        restore(usage, one.holder)
        if not preemptor.fits(usage, borrowing=borrowing):
            remove(usage, one.holder)
            kept.add(one.holder.queued.uid)
    return kept


def fill_back(targets: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """Spare those without whom the request fits all the same, the last chosen but one first.

    The last of the list takes the place of one that is spared, as in the reference.
    """
    kept = list(targets)
    for at in range(len(kept) - 2, -1, -1):
        restore(usage, kept[at].holder)
        if preemptor.fits(usage, borrowing=borrowing):
            kept[at] = kept[-1]
            kept.pop()
        else:
            remove(usage, kept[at].holder)
    return kept
