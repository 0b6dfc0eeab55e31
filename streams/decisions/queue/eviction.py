"""Records evictions: the preemptor, the victim, the reason and the shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource
from slacktide.streams.decisions.queue.cycle import Entry
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.share import node_share
from slacktide.streams.decisions.queue.victims import Target, remove


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
            after = usage.copy()
            after.book_all(entry.head.cluster.queue, entry.assignment.usage())
            for one in entry.assignment.targets:
                remove(after, one.holder)
            for one in entry.assignment.targets:
                yield _eviction(entry, one, usage, after, cycle)


def _eviction(entry: Entry, target: Target, before: QuotaUsage, after: QuotaUsage, cycle: int) -> Eviction:
    mine, theirs, queued = entry.head.cluster.queue, target.holder.queue, target.holder.queued
    preemptor = Party(
        entry.head.queued.uid,
        mine.name,
        entry.head.queued.priority or 0,
        entry.assignment.usage() if entry.assignment else {},
        node_share(mine, before).share,
        node_share(mine, after).share,
    )
    victim = Party(
        queued.uid,
        theirs.name,
        queued.priority or 0,
        target.holder.usage,
        node_share(theirs, before).share,
        node_share(theirs, after).share,
    )
    return Eviction(cycle, preemptor, victim, target.reason)
