"""Selects preemption targets without fair sharing.

Reading: kueue v0.19.2, pkg/scheduler/preemption/preemption.go, classical/candidate_generator.go,
classical/hierarchical_preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource, minus, plus
from slacktide.streams.decisions.queue.quota_tree import QuotaNode
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.victims import (
    Holder,
    Holders,
    Preemption,
    Preemptor,
    Target,
    by_queue,
    kept_choice,
    remove,
    spare,
)

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
    if preemptor.chosen_before and (kept := _kept(preemptor, tried, usage)):
        return kept
    for borrowing in _attempts(preemptor, policies, tried, usage):
        found = _attempt(preemptor, tried, usage.copy(), borrowing=borrowing)
        if found:
            return found
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
                    yield Candidate(one, RECLAIM if reclaims else _kind(one, preemptor, policies), above)
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


def _kind(one: Holder, preemptor: Preemptor, policies: Preemption) -> str:
    priority, most = one.queued.priority or 0, policies.priority_max
    too_high = priority >= (preemptor.queued.priority or 0) or (most is not None and priority > most)
    return NOT_BORROWING if too_high or not policies.borrow_within_cohort else BORROWING


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


def _attempt(preemptor: Preemptor, tried: list[Candidate], usage: QuotaUsage, *, borrowing: bool) -> list[Target]:
    found: list[Target] = []
    for one in tried:
        if one.top is not None and _spared(one, one.top, preemptor, usage, borrowing=borrowing):
            continue
        remove(usage, one.holder)
        found.append(Target(one.holder, REASONS[one.kind]))
        if preemptor.fits(usage, borrowing=borrowing):
            return spare(found, preemptor, usage, borrowing=borrowing)
    return []


def _kept(preemptor: Preemptor, tried: list[Candidate], usage: QuotaUsage) -> list[Target]:
    """Return the previous targets if they suffice, with borrowing unless a target forbids it."""
    chosen = [one for one in tried if one.holder.queued.uid in preemptor.chosen_before]
    borrowing = all(one.kind != NOT_BORROWING for one in chosen)
    again = [Target(one.holder, preemptor.chosen_before[one.holder.queued.uid]) for one in chosen]
    return kept_choice(again, preemptor, usage.copy(), borrowing=borrowing)


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
