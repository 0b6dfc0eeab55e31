"""One scheduling cycle: admits workloads at the heads of ClusterQueues, or selects their preemption targets.

Reading: kueue v0.19.2, pkg/scheduler/scheduler.go, fair_sharing_iterator.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.assign import Assignment, Cluster, PodSet, assign, exceeds_max_quota
from slacktide.streams.decisions.queue.flavor_match import NO_ROOM
from slacktide.streams.decisions.queue.preempt import Target, remove
from slacktide.streams.decisions.queue.queue_order import (
    CHECK,
    EXCEEDS_MAX_QUOTA,
    PREEMPTION_REPEATS,
    WAITING_FOR_PODS_READY,
    Place,
    Queued,
    RequeuingTimestamp,
    place,
)
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    QuotaNode,
    QuotaUsage,
    Share,
    minus,
    node_share,
    plus,
)

Status = Literal["", "skipped", "assumed", "inadmissible"]
FairPlace = tuple[bool, tuple[bool, float], Place]


class Head(NamedTuple):
    """A workload taken from its ClusterQueue for a cycle."""

    queued: Queued
    cluster: Cluster
    pod_sets: Sequence[PodSet]
    barred: str = ""
    """Reason for which its queues do not admit it: it is not tried."""
    has_progress: bool = False
    """It was tried before, and its pod sets name the last tried flavors."""

    def repeated(self, targets: Iterable[Target]) -> list[str]:
        """Return uids of targets that it would preempt again, although nothing finished since."""
        before = self.cluster.preempted_before if self.cluster.corrected else frozenset()
        return [one.holder.queued.uid for one in targets if one.holder.queued.uid in before and not one.holder.stops]


class Entry(NamedTuple):
    """The result of a cycle for a workload."""

    head: Head
    assignment: Assignment | None
    """None: not decided, because its queues do not admit it or the cycle ended before."""
    status: Status = ""
    """assumed: admitted. "": pending."""
    requeue_reason: str = ""
    quota_reason: str = ""

    @property
    def evicts(self) -> bool:
        """Return whether its targets are to be evicted now."""
        return self.requeue_reason == "PendingPreemption"

    @property
    def keeps_progress(self) -> bool:
        """Return whether the next try may continue from the tried flavors."""
        return self.head.has_progress if self.assignment is None else not self.evicts


class _Nominated(NamedTuple):
    head: Head
    assignment: Assignment
    usage: Mapping[FlavorResource, int]

    @property
    def queue(self) -> QuotaNode:
        return self.head.cluster.queue


def cycle(
    heads: Iterable[Head], usage: QuotaUsage, requeuing: RequeuingTimestamp = "Eviction", most: int | None = None
) -> list[Entry]:
    """Decide on the heads, at most one per ClusterQueue. ``usage`` is that before the cycle, and is not changed.

    ``most``: maximum number of admissions; the cycle ends at the next one that fits. None: no limit.
    Return entries in the order of decisions. Heads that are not tried are last, by ClusterQueue.
    """
    nominated, barred = [], []
    for one in heads:
        done = None if one.barred else assign(one.queued, one.pod_sets, one.cluster)
        check = done.check(one.cluster.checks) if done is not None else ""
        if done is None or check:
            barred.append(Entry(one, None, "inadmissible", one.barred or f"{CHECK}{check}", "Misconfigured"))
        else:
            nominated.append(_Nominated(one, done, done.usage()))
    run = _Cycle(usage.copy(), most)
    fair = any(one.head.cluster.fair_sharing for one in nominated)
    by_height = sorted(nominated, key=lambda one: (one.assignment.height, place(one.head.queued, requeuing)))
    ordered = _by_share(nominated, run.usage, requeuing) if fair else by_height
    entries = [run.decided(one) for one in ordered]
    return [*entries, *sorted(barred, key=lambda one: one.head.cluster.queue.name)]


def _by_share(
    nominated: Iterable[_Nominated], usage: QuotaUsage, requeuing: RequeuingTimestamp
) -> Iterator[_Nominated]:
    """Order tree by tree, by a tournament on the current usage."""
    trees: dict[QuotaNode, dict[QuotaNode, _Nominated]] = {}
    for one in nominated:
        trees.setdefault(one.queue.root(), {})[one.queue] = one
    for root in sorted(trees, key=lambda node: (node.name, node.is_queue)):
        left = trees[root]
        while left:
            shares: dict[QuotaNode, dict[QuotaNode, Share]] = {}
            for queue, one in left.items():
                # Of its ClusterQueue and of each cohort below the root, after its admission.
                usage.book_all(queue, one.usage)
                path = (node for node in (queue, *queue.ancestors()) if node.parent is not None)
                shares[queue] = {node: node_share(node, usage) for node in path}
                usage.book_all(queue, one.usage, -1)
            yield left.pop(_winner(root, left, shares, requeuing))


def _winner(
    node: QuotaNode,
    left: Mapping[QuotaNode, _Nominated],
    shares: Mapping[QuotaNode, Mapping[QuotaNode, Share]],
    requeuing: RequeuingTimestamp,
) -> QuotaNode:
    """Return the ClusterQueue below a node whose entry is next: the winner among the children's winners."""
    if node.is_queue:
        return node
    ahead = {queue.path()[len(node.path())] for queue in left if node in queue.ancestors()}
    winners = {_winner(child, left, shares, requeuing): child for child in ahead}

    def order(queue: QuotaNode) -> FairPlace:
        share, one = shares[queue][winners[queue]], left[queue]
        borrows = any(amount > 0 and of in share.borrowing_on for of, amount in one.usage.items())
        return borrows, share.order, place(one.head.queued, requeuing)

    return min(winners, key=order)


class _Cycle:
    """Decides entries in order; later entries see the bookings of earlier ones."""

    def __init__(self, usage: QuotaUsage, most: int | None) -> None:
        self.usage = usage
        self._left = most
        self._ended = False
        self._without_victims = usage.copy()
        """The usage without all victims of the cycle."""
        self._held = usage.copy()
        """The usage that is really held: victims still hold theirs, preemptors hold nothing yet."""
        self._victims: set[str] = set()

    def decided(self, one: _Nominated) -> Entry:
        """Return the result of an entry."""
        if self._ended:
            return Entry(one.head, None, requeue_reason=WAITING_FOR_PODS_READY)
        if one.assignment.mode == "NoFit":
            # The reference retries it for both reasons.
            head = one.head
            never = head.cluster.corrected and exceeds_max_quota(head.queued, head.pod_sets, head.cluster)
            return Entry(head, one.assignment, requeue_reason=EXCEEDS_MAX_QUOTA if never else "NoFit")
        if one.assignment.works:
            return self._booked(one)
        # Without candidates, book a reservation, unless it could reclaim the quota.
        if one.head.cluster.policies.reclaim_within_cohort != "Any":
            self._book(one.queue, self._reservation(one))
        return Entry(one.head, one.assignment, "", "PreemptionNoCandidates", "WaitingForQuota")

    def _booked(self, one: _Nominated) -> Entry:
        """Admit the workload or evict its targets, unless earlier entries left too little."""
        mode, targets = one.assignment.mode, one.assignment.targets
        uids = {each.holder.queued.uid for each in targets}
        without = self._without_victims
        if targets:
            without = without.copy()
            for each in targets:
                remove(without, each.holder)
        looked_at = [without]
        if mode == "Fit" and one.head.cluster.corrected:
            looked_at.append(self._held)  # victims still hold quota, which the reference ignores
        fits = all(usage.fits(one.queue, of, amount) for usage in looked_at for of, amount in one.usage.items())
        if uids & self._victims or not fits:
            return Entry(one.head, one.assignment, "skipped", "FailedAfterNomination", "WaitingForQuota")
        if one.head.repeated(targets):
            return Entry(one.head, one.assignment, "", PREEMPTION_REPEATS, "WaitingForQuota")
        if mode == "Fit" and self._left == 0:
            self._ended = True
            return Entry(one.head, None, requeue_reason=WAITING_FOR_PODS_READY)
        room = one.head.cluster.room
        if mode == "Fit" and room is not None:
            groups = one.assignment.groups()
            if not room.fits(groups):
                return Entry(one.head, one.assignment, "skipped", NO_ROOM, "WaitingForQuota")
            room.take(one.head.queued.uid, groups)
        self._victims |= uids
        for each in targets:
            remove(self._without_victims, each.holder)
        self._book(one.queue, one.usage)
        if mode == "Preempt":
            return Entry(one.head, one.assignment, "", "PendingPreemption", "WaitingForPreemptedWorkloads")
        self._left = None if self._left is None else self._left - 1
        self._held.book_all(one.queue, one.usage)
        return Entry(one.head, one.assignment, "assumed")

    def _reservation(self, one: _Nominated) -> dict[FlavorResource, int]:
        """Return the amounts that later entries may not take from a pending workload."""
        reserved: dict[FlavorResource, int] = {}
        for of, amount in one.usage.items():
            quota, used = one.queue.quota(of), self.usage.usage(one.queue, of)
            if not one.assignment.height:
                reserved[of] = max(0, min(amount, minus(quota.nominal, used)))
            elif quota.borrowing_limit is None:
                reserved[of] = amount
            else:
                reserved[of] = min(amount, minus(plus(quota.nominal, quota.borrowing_limit), used))
        return reserved

    def _book(self, queue: QuotaNode, amounts: Mapping[FlavorResource, int]) -> None:
        for usage in (self.usage, self._without_victims):
            usage.book_all(queue, amounts)


class Party(NamedTuple):
    """A preemptor or victim, with its ClusterQueue's share before and after."""

    uid: str
    queue: str
    priority: int
    amounts: Mapping[FlavorResource, int]
    share_before: float
    share_after: float


class Eviction(NamedTuple):
    """One victim of a cycle."""

    cycle: int
    preemptor: Party
    victim: Party
    reason: str


def evictions(entries: Iterable[Entry], usage: QuotaUsage, cycle: int) -> Iterator[Eviction]:
    """Return a record for each victim of a cycle; ``usage`` is that before the cycle.

    Shares after include the preemptor's usage and exclude all of its victims.
    """
    for entry in entries:
        if entry.evicts and entry.assignment is not None:
            queue, amounts, after = entry.head.cluster.queue, entry.assignment.usage(), usage.copy()
            after.book_all(queue, amounts)
            for one in entry.assignment.targets:
                remove(after, one.holder)
            for one in entry.assignment.targets:
                mine = _party(entry.head.queued, queue, amounts, usage, after)
                theirs = _party(one.holder.queued, one.holder.queue, one.holder.usage, usage, after)
                yield Eviction(cycle, mine, theirs, one.reason)


def _party(
    one: Queued, queue: QuotaNode, amounts: Mapping[FlavorResource, int], before: QuotaUsage, after: QuotaUsage
) -> Party:
    shares = node_share(queue, before).share, node_share(queue, after).share
    return Party(one.uid, queue.name, one.priority or 0, amounts, *shares)
