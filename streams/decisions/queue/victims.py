"""Workloads that hold quota: which a preemptor may preempt, and in which order.

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
    """The preemption policies of a ClusterQueue."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: bool = False
    """Preempt also while the ClusterQueue borrows."""
    priority_max: int | None = None
    """Maximum priority of workloads preempted while borrowing."""


class Holder(NamedTuple):
    """A workload that holds quota."""

    queued: Queued
    queue: QuotaNode
    assigned: frozenset[FlavorResource]
    """Assigned, used or not."""
    usage: Mapping[FlavorResource, int]
    reserved_at_s: int | None = None
    """Time of the quota reservation; None: now."""
    pods: tuple[PodGroup, ...] = ()


Holders = Iterable[Holder] | Mapping[QuotaNode, Iterable[Holder]]
"""Workloads that hold quota, optionally by ClusterQueue for faster searches."""


def by_queue(holders: Holders) -> Mapping[QuotaNode, Iterable[Holder]]:
    """Group the workloads by ClusterQueue."""
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
    needed: frozenset[FlavorResource]
    """Flavors and resources that it must preempt for."""
    now_s: int = 0
    requeuing: RequeuingTimestamp = "Eviction"
    corrected: bool = False
    """Select victims better than the reference, see ``spare``."""
    chosen_before: Mapping[str, str] = {}
    """Reasons of its targets in the previous cycle, by uid. If corrected, they are kept while they suffice."""

    def may_preempt(self, one: Holder, policy: Policy) -> bool:
        """Return whether a policy permits to preempt a workload that holds needed resources."""
        if policy == "Never" or self.needed.isdisjoint(one.assigned):
            return False
        mine, other = self.queued.priority or 0, one.queued.priority or 0
        if policy == "Any" or mine > other:
            return True
        if policy != "LowerOrNewerEqualPriority" or mine != other:
            return False
        return queue_time_s(self.queued, self.requeuing) < queue_time_s(one.queued, self.requeuing)

    def order(self, one: Holder) -> tuple[bool, bool, int, int, str]:
        """Return a sort key of victims: evicted, other ClusterQueues, low priority, late reservation."""
        evicted = one.queued.evicted is not None and one.queued.evicted.status
        reserved_at_s = self.now_s if one.reserved_at_s is None else one.reserved_at_s
        return not evicted, one.queue is self.queue, one.queued.priority or 0, -reserved_at_s, one.queued.uid

    def fits(self, usage: QuotaUsage, *, borrowing: bool) -> bool:
        """Return whether its request fits, with or without borrowing."""
        return all(
            usage.fits(self.queue, of, amount) and (borrowing or not usage.borrowing(self.queue, of, amount))
            for of, amount in self.request.items()
        )


class Target(NamedTuple):
    """A workload to preempt."""

    holder: Holder
    reason: str


def remove(usage: QuotaUsage, one: Holder) -> None:
    """Subtract a workload's usage."""
    usage.book_all(one.queue, one.usage, -1)


def restore(usage: QuotaUsage, one: Holder) -> None:
    """Add a workload's usage."""
    usage.book_all(one.queue, one.usage)


def spare(targets: Sequence[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """Return the targets that are necessary, in order. All targets are removed from the usage at the call.

    The reference restores unnecessary victims in reverse order. Corrected, the same is also tried in order, and the
    smaller result is returned; of ties, the reference's.
    """
    if not preemptor.corrected:
        return fill_back(targets, preemptor, usage, borrowing=borrowing)
    late = _needed(reversed(targets), preemptor, usage.copy(), borrowing=borrowing)
    early = _needed(targets, preemptor, usage, borrowing=borrowing)
    kept = early if len(early) < len(late) else late
    return [one for one in targets if one.holder.queued.uid in kept]


def kept_choice(tried: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """Return the necessary targets of the previous cycle; empty if they do not suffice. Changes ``usage``."""
    again = [one for one in tried if one.holder.queued.uid in preemptor.chosen_before]
    if not again or len(again) < len(preemptor.chosen_before):
        return []
    for one in again:
        remove(usage, one.holder)
    return spare(again, preemptor, usage, borrowing=borrowing) if preemptor.fits(usage, borrowing=borrowing) else []


def _needed(targets: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> set[str]:
    """Restore each target in turn; return uids of those without which the request does not fit."""
    kept = set()
    for one in targets:
        restore(usage, one.holder)
        if not preemptor.fits(usage, borrowing=borrowing):
            remove(usage, one.holder)
            kept.add(one.holder.queued.uid)
    return kept


def fill_back(targets: Iterable[Target], preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    """Restore targets that are not needed, from the last but one to the first.

    The last target replaces a restored one in the list, as in the reference.
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
