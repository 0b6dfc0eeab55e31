"""Selects preemption targets with fair sharing: from the largest shares, while the preemptor's share is smaller.

Reading: kueue v0.19.2, pkg/scheduler/preemption/preemption.go (fairPreemptions), fairsharing.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from slacktide.streams.decisions.queue.preempt import (
    Holder,
    Holders,
    Preemption,
    Preemptor,
    Target,
    by_queue,
    kept_choice,
    remove,
    restore,
    spare,
)
from slacktide.streams.decisions.queue.quota_tree import QuotaNode, QuotaUsage, Share, node_share

Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
STRATEGIES: tuple[Strategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
OWN, RECLAIM, FAIR = "InClusterQueue", "InCohortReclamation", "InCohortFairSharing"


def fair_targets(
    preemptor: Preemptor,
    policies: Preemption,
    holders: Holders,
    usage: QuotaUsage,
    strategies: Sequence[Strategy] = STRATEGIES,
) -> list[Target]:
    """Return the targets whose preemption makes the request fit; empty if it cannot fit."""
    candidates, root = list[Holder](), preemptor.queue.root()
    for queue, of_queue in by_queue(holders).items():
        policy = policies.reclaim_within_cohort
        if queue is preemptor.queue:
            policy = policies.within_cluster_queue
        # Others in its tree must borrow needed resources.
        elif queue.root() is not root or not any(usage.borrowing(queue, of) for of in preemptor.needed):
            continue
        candidates += [one for one in of_queue if preemptor.may_preempt(one, policy)]
    candidates.sort(key=preemptor.order)
    chosen = preemptor.chosen_before
    again = [Target(one, chosen[one.queued.uid]) for one in candidates if one.queued.uid in chosen]
    if kept := kept_choice(again, preemptor, usage.copy(), borrowing=True):
        return kept
    held = {queue: list(of_queue) for queue, of_queue in by_queue(candidates).items()}
    return _Search(preemptor, held, usage.copy()).targets(strategies)


class _Search:
    """One search. The request is booked, so that all shares include it."""

    def __init__(self, preemptor: Preemptor, by_queue: dict[QuotaNode, list[Holder]], usage: QuotaUsage) -> None:
        self._preemptor, self._by_queue, self._usage = preemptor, by_queue, usage
        self._mine = {preemptor.queue, *preemptor.queue.ancestors()}
        self._gone: set[QuotaNode] = set()
        self._found: list[Target] = []

    def targets(self, strategies: Sequence[Strategy]) -> list[Target]:
        """Return the targets of both rounds without unnecessary ones."""
        if not self._by_queue:
            return []
        self._book()
        done, retry = self._first_round(strategies[0])
        if not done and len(strategies) > 1:
            # Try each ClusterQueue whose share is above the preemptor's once.
            self._by_queue, self._gone = retry, set()
            for queue in self._picked():
                mine, theirs = self._sides(queue)
                lets = self._share(mine).order < self._share(theirs).order
                done = lets and self._take(self._by_queue[queue][0], FAIR)
                if done:
                    break
                self._gone.add(queue)
        self._book(-1)
        return spare(self._found, self._preemptor, self._usage, borrowing=True) if done else []

    def _first_round(self, strategy: Strategy) -> tuple[bool, dict[QuotaNode, list[Holder]]]:
        """Return whether the request fits, and the candidates that the strategy rejected."""
        mine = self._preemptor.queue
        inside = not any(self._usage.borrowing(mine, of) for of in self._preemptor.needed)
        retry: dict[QuotaNode, list[Holder]] = {}
        for queue in self._picked():
            if queue is mine or inside:
                reason = OWN if queue is mine else RECLAIM
                fits = self._take(self._by_queue[queue].pop(0), reason)
            else:
                fits = self._take_fairly(queue, strategy, retry)
            if fits:
                return True, retry
        return False, retry

    def _take_fairly(self, queue: QuotaNode, strategy: Strategy, retry: dict[QuotaNode, list[Holder]]) -> bool:
        mine, theirs = self._sides(queue)
        new, old = self._share(mine), self._share(theirs)
        while self._by_queue[queue]:
            one = self._by_queue[queue].pop(0)
            remove(self._usage, one)
            after = self._share(theirs)
            restore(self._usage, one)
            lets = new.order < old.order if strategy == "LessThanInitialShare" else new.order <= after.order
            if lets:
                return self._take(one, FAIR)
            retry.setdefault(queue, []).append(one)
        return False

    def _take(self, one: Holder, reason: str) -> bool:
        remove(self._usage, one)
        self._found.append(Target(one, reason))
        self._book(-1)
        fits = self._preemptor.fits(self._usage, borrowing=True)
        self._book()
        return fits

    def _picked(self) -> Iterator[QuotaNode]:
        """Yield ClusterQueues, each time the one with the largest share from the root down."""
        root = self._preemptor.queue.root()
        while root not in self._gone:
            if root.is_queue:
                if not self._by_queue.get(root):
                    return
                yield root
            elif (queue := self._pick(root)) is not None:
                yield queue

    def _pick(self, cohort: QuotaNode) -> QuotaNode | None:
        """Return None if the call only marked cohorts or ClusterQueues without candidates."""
        while True:
            queue = self._best_queue(cohort)
            inner = self._best_cohort(cohort)
            if inner is not None and (queue is None or self._share(inner).order >= self._share(queue).order):
                cohort = inner
                continue
            if queue is None:
                self._gone.add(cohort)
            return queue

    def _best_queue(self, cohort: QuotaNode) -> QuotaNode | None:
        """Break ties by the first candidate."""
        best: QuotaNode | None = None
        for queue in (child for child in cohort.children if child.is_queue and child not in self._gone):
            borrows = bool(self._share(queue).borrowing_on) or queue is self._preemptor.queue
            if not self._by_queue.get(queue) or not borrows:
                self._gone.add(queue)
            elif best is None:
                best = queue
            else:
                mine, other = self._share(queue).order, self._share(best).order
                first, of_best = (self._preemptor.order(self._by_queue[each][0]) for each in (queue, best))
                best = queue if mine > other or (mine == other and first < of_best) else best
        return best

    def _best_cohort(self, cohort: QuotaNode) -> QuotaNode | None:
        """Break ties by the first candidate, then by name."""
        inner = [child for child in cohort.children if not child.is_queue and child not in self._gone]
        for child in inner:
            if child not in self._mine and not self._share(child).borrowing_on:
                self._gone.add(child)
        left = sorted((child for child in inner if child not in self._gone), key=self._first_below)
        return max(left, key=lambda child: self._share(child).order, default=None)

    def _first_below(self, cohort: QuotaNode) -> tuple[bool, tuple[bool, bool, int, int, str], str]:
        """Return a sort key for cohorts; one without candidates is last."""
        below = [held[0] for queue, held in self._by_queue.items() if held and cohort in queue.ancestors()]
        first = min((self._preemptor.order(one) for one in below), default=(True, True, 0, 0, ""))
        return not below, first, cohort.name

    def _sides(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the preemptor's and the victim's nodes directly below their lowest common cohort."""
        theirs = queue
        while theirs.parent is not None and theirs.parent not in self._mine:
            theirs = theirs.parent
        mine = self._preemptor.queue
        while mine.parent is not theirs.parent and mine.parent is not None:
            mine = mine.parent
        return mine, theirs

    def _share(self, node: QuotaNode) -> Share:
        return node_share(node, self._usage)

    def _book(self, sign: int = 1) -> None:
        self._usage.book_all(self._preemptor.queue, self._preemptor.request, sign)
