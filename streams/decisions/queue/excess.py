"""Computes the usage above the current quotas after quotas shrank, and the workloads to evict for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.preempt import Holder, remove
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage


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
    over = _over(holders, usage)
    if not over:
        return []
    amounts: dict[str, dict[FlavorResource, int]] = {}
    for queue, of in over:
        amounts.setdefault(queue.name, {})[of] = min(usage.usage(queue, of), -usage.available(queue, of))
    stops: dict[str, list[str]] = {}
    left = sorted((one for one in holders if one.queue.name in amounts), key=_order)
    while over:
        one = next(iter(_stopping(left, over, usage)), None)
        if one is None:
            break
        stops.setdefault(one.queue.name, []).append(one.queued.uid)
        left.remove(one)
        remove(usage, one)
        over = {pair for pair in over if usage.available(*pair) < 0}
    return [Excess(name, amounts[name], tuple(stops.get(name, ()))) for name in sorted(amounts)]


def _over(holders: Iterable[Holder], usage: QuotaUsage) -> set[tuple[QuotaNode, FlavorResource]]:
    pairs = {(one.queue, of) for one in holders for of, amount in one.usage.items() if amount > 0}
    return {(queue, of) for queue, of in pairs if usage.available(queue, of) < 0}


def _stopping(left: Iterable[Holder], over: set[tuple[QuotaNode, FlavorResource]], usage: QuotaUsage) -> list[Holder]:
    """Return the next candidates, only of ClusterQueues that borrow if there are any."""
    left = list(left)
    uses = [one for one in left if any(amount > 0 and (one.queue, of) in over for of, amount in one.usage.items())]
    borrows = [
        one for one in uses if any(usage.borrowing(one.queue, of) and (one.queue, of) in over for of in one.usage)
    ]
    return borrows or uses


def _order(one: Holder) -> tuple[bool, int, int, str]:
    evicted = one.queued.evicted is not None and one.queued.evicted.status
    return not evicted, one.queued.priority or 0, -(one.reserved_at_s or 0), one.queued.uid
