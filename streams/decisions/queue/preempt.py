"""Workloads that hold quota, which of them a preemptor may preempt, and the targets without fair sharing.

Also the workloads to evict after quotas shrank, which is not a rule of Kueue. Reading: kueue v0.19.2,
pkg/scheduler/preemption/preemption.go, common (preemption_policy.go, ordering.go), classical (candidate_generator.go,
hierarchical_preemption.go).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.flavor_match import PodGroup
from slacktide.streams.decisions.queue.queue_order import Queued, RequeuingTimestamp, queue_time_s
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode, QuotaUsage, minus, plus

Policy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]


class Preemption(NamedTuple):
    """The preemption policies of a ClusterQueue."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: bool = False
    """Preempt also while the ClusterQueue borrows."""
    priority_max: int | None = None
    """Maximum priority of workloads preempted while borrowing."""
    no_more_borrowing: bool = False
    """The ClusterQueue may not use more than its nominal quota, or than it uses now."""


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

    @property
    def stops(self) -> bool:
        """Return whether it is being evicted."""
        return self.queued.evicted is not None and self.queued.evicted.status


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
    usage_max: Mapping[FlavorResource, int] = {}
    """Maximum usage of its ClusterQueue."""

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
        reserved_at_s = self.now_s if one.reserved_at_s is None else one.reserved_at_s
        return not one.stops, one.queue is self.queue, one.queued.priority or 0, -reserved_at_s, one.queued.uid

    def fits(self, usage: QuotaUsage, *, borrowing: bool) -> bool:
        """Return whether its request fits, with or without borrowing."""
        queue, most = self.queue, self.usage_max
        return all(
            usage.fits(queue, of, amount)
            and (borrowing or not usage.borrowing(queue, of, amount))
            and (of not in most or plus(usage.usage(queue, of), amount) <= most[of])
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

    The reference restores unnecessary victims from the last but one to the first; the last one replaces a restored one
    in the list. Corrected, the same is also tried in order, and the smaller result is returned; of ties, the
    reference's.
    """
    if not preemptor.corrected:
        left = list(targets)
        for at in range(len(left) - 2, -1, -1):
            restore(usage, left[at].holder)
            if preemptor.fits(usage, borrowing=borrowing):
                left[at] = left[-1]
                left.pop()
            else:
                remove(usage, left[at].holder)
        return left
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


WITHIN = "within_cluster_queue"
RECLAIM = "hierarchical_reclaim"
NOT_BORROWING = "reclaim_without_borrowing"
BORROWING = "reclaim_while_borrowing"
REASONS = {
    WITHIN: "InClusterQueue",
    RECLAIM: "InCohortReclamation",
    NOT_BORROWING: "InCohortReclamation",
    BORROWING: "InCohortReclaimWhileBorrowing",
}


class Candidate(NamedTuple):
    """A workload that may be preempted."""

    holder: Holder
    kind: str
    top: QuotaNode | None = None
    """The lowest cohort shared with the preemptor; None: they share the ClusterQueue."""


def candidates(preemptor: Preemptor, policies: Preemption, holders: Holders, usage: QuotaUsage) -> list[Candidate]:
    """Return all workloads that may be preempted, in order."""
    held = by_queue(holders)
    same = [
        Candidate(one, WITHIN)
        for one in held.get(preemptor.queue, ())
        if preemptor.may_preempt(one, policies.within_cluster_queue)
    ]
    others = list(_others(preemptor, policies, held, usage))
    reclaimed = [one for one in others if one.kind == RECLAIM]
    rest = [one for one in others if one.kind != RECLAIM]
    lists = [sorted(each, key=lambda one: preemptor.order(one.holder)) for each in (reclaimed, rest, same)]
    return sorted((one for each in lists for one in each), key=lambda one: preemptor.order(one.holder)[0])


def targets(preemptor: Preemptor, policies: Preemption, tried: list[Candidate], usage: QuotaUsage) -> list[Target]:
    """Return the targets whose preemption makes the request fit; empty if it cannot fit."""
    if preemptor.chosen_before:
        # The previous targets, if they suffice, with borrowing unless a target forbids it.
        chosen = [one for one in tried if one.holder.queued.uid in preemptor.chosen_before]
        borrowing = all(one.kind != NOT_BORROWING for one in chosen)
        again = [Target(one.holder, preemptor.chosen_before[one.holder.queued.uid]) for one in chosen]
        if kept := kept_choice(again, preemptor, usage.copy(), borrowing=borrowing):
            return kept
    for borrowing in _attempts(preemptor, policies, tried, usage):
        left, found = usage.copy(), list[Target]()
        for one in tried:
            if one.top is not None and _spared(one, one.top, preemptor, left, borrowing=borrowing):
                continue
            remove(left, one.holder)
            found.append(Target(one.holder, REASONS[one.kind]))
            if preemptor.fits(left, borrowing=borrowing):
                if kept := spare(found, preemptor, left, borrowing=borrowing):
                    return kept
                break
    return []


def _others(
    preemptor: Preemptor, policies: Preemption, held: Mapping[QuotaNode, Iterable[Holder]], usage: QuotaUsage
) -> Iterator[Candidate]:
    """Yield candidates of other ClusterQueues. Once the request fits a node's quota, higher levels are reclaimed."""
    if policies.reclaim_within_cohort == "Never":
        return
    below = preemptor.queue
    reclaims, rest = _step(below, preemptor.request, usage)
    for above in preemptor.queue.ancestors():
        for queue in _borrowers(above, below, preemptor, usage):
            for one in held.get(queue, ()):
                if preemptor.may_preempt(one, policies.reclaim_within_cohort):
                    priority, most = one.queued.priority or 0, policies.priority_max
                    too_high = priority >= (preemptor.queued.priority or 0) or (most is not None and priority > most)
                    lent = NOT_BORROWING if too_high or not policies.borrow_within_cohort else BORROWING
                    yield Candidate(one, RECLAIM if reclaims else lent, above)
        fit, rest = _step(above, rest, usage)
        reclaims = reclaims or fit
        below = above


def _step(
    node: QuotaNode, request: Mapping[FlavorResource, int], usage: QuotaUsage
) -> tuple[bool, dict[FlavorResource, int]]:
    """Return whether a request fits a node's quota, and the remainder for its parent."""
    fit = all(node.subtree_quota(of) >= plus(usage.usage(node, of), amount) for of, amount in request.items())
    return fit, {of: max(0, minus(amount, usage.local_available(node, of))) for of, amount in request.items()}


def _borrowers(above: QuotaNode, below: QuotaNode, preemptor: Preemptor, usage: QuotaUsage) -> Iterator[QuotaNode]:
    """Yield ClusterQueues under a cohort that borrow needed resources; skip cohorts that do not."""
    nodes = [child for child in above.children if child is not below]
    while nodes:
        node = nodes.pop()
        if usage.within_nominal(node, preemptor.needed):
            continue
        if node.is_queue:
            yield node
        nodes.extend(node.children)


def _attempts(
    preemptor: Preemptor, policies: Preemption, tried: list[Candidate], usage: QuotaUsage
) -> tuple[bool, ...]:
    """Return the attempts in order; True: with borrowing."""
    forbidden = not policies.borrow_within_cohort
    queue = preemptor.queue
    under = all(queue.quota(of).nominal > usage.usage(queue, of) for of in preemptor.needed)
    if all(one.top is None for one in tried) or (forbidden and not under):
        return (True,)
    if forbidden and all(one.kind != RECLAIM for one in tried):
        return False, True
    return True, False


def _spared(one: Candidate, top: QuotaNode, preemptor: Preemptor, usage: QuotaUsage, *, borrowing: bool) -> bool:
    """Return whether borrowing excludes it, or its ClusterQueue or a cohort below ``top`` no longer borrows."""
    if borrowing and one.kind == NOT_BORROWING:
        return True
    node: QuotaNode | None = one.holder.queue
    while node is not None and node is not top:
        if usage.within_nominal(node, preemptor.needed):
            return True
        node = node.parent
    return False


class Excess(NamedTuple):
    """The excess of one ClusterQueue."""

    queue: str
    amounts: Mapping[FlavorResource, int]
    stops: tuple[str, ...]


def excess(holders: Iterable[Holder], usage: QuotaUsage) -> list[Excess]:
    """Return ClusterQueues with excess usage, by name. Those that borrow evict first.

    Evict the workload with the lowest priority first; of ties, the one admitted last.
    """
    holders, usage = list(holders), usage.copy()
    pairs = {(one.queue, of) for one in holders for of, amount in one.usage.items() if amount > 0}
    over = {(queue, of) for queue, of in pairs if usage.available(queue, of) < 0}
    if not over:
        return []
    amounts: dict[str, dict[FlavorResource, int]] = {}
    for queue, of in over:
        amounts.setdefault(queue.name, {})[of] = min(usage.usage(queue, of), -usage.available(queue, of))
    stops: dict[str, list[str]] = {}
    left = sorted(
        (one for one in holders if one.queue.name in amounts),
        key=lambda one: (not one.stops, one.queued.priority or 0, -(one.reserved_at_s or 0), one.queued.uid),
    )
    while over:
        uses = [one for one in left if any(amount > 0 and (one.queue, of) in over for of, amount in one.usage.items())]
        borrows = (
            one for one in uses if any(usage.borrowing(one.queue, of) and (one.queue, of) in over for of in one.usage)
        )
        if not uses:
            break
        one = next(borrows, uses[0])
        stops.setdefault(one.queue.name, []).append(one.queued.uid)
        left.remove(one)
        remove(usage, one)
        over = {pair for pair in over if usage.available(*pair) < 0}
    return [Excess(name, amounts[name], tuple(stops.get(name, ()))) for name in sorted(amounts)]
