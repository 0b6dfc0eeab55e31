"""Fold Job events into Job statuses. A consumer group of its own spreads the partitions over all workers.

A status is published before its offset is committed. After a rebalance the new owner reads the statuses, then the
events from the committed offset. It may fold an event twice, and never misses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from slacktide.schemas.access import JOBS_GROUP
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import JOB_POD, JOB_STATUS
from slacktide.streams.engine import metrics
from slacktide.streams.engine.leader_election import run_until_stopped
from slacktide.streams.jobs.folder import SOURCE, Folder
from slacktide.streams.kafka import WHOLE, Group, Refused, Sender, Tail, last_of_each_key, present
from slacktide.streams.records import Out, Place, Record, dead_letter_of_refused

FETCH_WAIT_MS = 1_000
"""Kafka answers as soon as there is an event. The embedded broker answers after this time."""
POLL_S = 0.5
PUBLISH_S = 1.0
"""A Job's status is published at most once in this interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """Settings of a worker that folds Job events."""

    bootstrap: Cluster
    session_timeout_ms: int = 6_000
    """The group reassigns the partitions of a worker after this time without a heartbeat."""


async def fold_jobs(settings: FoldSettings, stop: asyncio.Event, now_ms: Callable[[], int]) -> None:
    """Fold until ``stop`` is set."""
    await run_until_stopped(
        lambda: _Member(settings, now_ms).run(stop),
        stop,
        away="no statuses of Jobs: %s; trying until it works",
        failed="the folding of Jobs has failed; the worker goes on, and this begins again",
    )


@dataclass(slots=True)
class _Share:
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when ``places`` is known."""
    places: frozenset[Place] = frozenset()
    folders: dict[Place, Folder] = field(default_factory=dict)
    positions: dict[Place, int] = field(default_factory=dict)
    """Next offset by partition, where events were folded since the last commit."""
    look_s: float | None = None
    """When to look for statuses that the previous owner wrote late; monotonic."""


class _Member:
    def __init__(self, settings: FoldSettings, now_ms: Callable[[], int]) -> None:
        self._settings, self._now_ms = settings, now_ms
        self._share = _Share()
        self._dead_letters: list[Out] = []
        self._group = Group(
            settings.bootstrap,
            [JOB_POD.name],
            JOBS_GROUP,
            session_timeout_ms=settings.session_timeout_ms,
            fetch_wait_ms=FETCH_WAIT_MS,
            assigned=self._assigned,
            revoked=self._revoked,
        )
        self._sender = Sender(settings.bootstrap, client_id="slacktide-jobs", acks="all")

    async def run(self, stop: asyncio.Event) -> None:
        """Join the group, fold events, and leave."""
        loop = asyncio.get_running_loop()
        try:
            counts = await present(self._settings.bootstrap, [JOB_POD.name, JOB_STATUS.name])
            if counts[JOB_POD.name] != counts[JOB_STATUS.name]:
                raise LogError(f"{JOB_POD.name} and {JOB_STATUS.name} differ in partitions: slacktide topics plan")
            await self._sender.connect([JOB_STATUS.name])
            await self._group.join()
            published_s = loop.time()
            while not stop.is_set():
                fetched, _ = await self._group.fetch(POLL_S)
                if fetched and await self._ready():
                    for place, records in fetched.items():
                        self._dead_letters += self._share.folders[place].take(records, self._now_ms())
                        self._share.positions[place] = records[-1].offset + 1
                        metrics.JOB_EVENTS.inc(len(records))
                if loop.time() >= published_s + PUBLISH_S:
                    published_s = loop.time()
                    await self._publish()
            await self._publish()
        finally:
            metrics.JOBS.set(0)
            await self._sender.close()
            await self._group.leave()

    async def _ready(self) -> bool:
        """Read the statuses of newly assigned partitions; return False if they were revoked meanwhile."""
        share = self._share
        if not share.folders:
            try:
                await asyncio.wait_for(share.known.wait(), self._settings.session_timeout_ms / 1_000)
            except TimeoutError as exc:
                raise LogError("the group did not name this worker's partitions in time") from exc
            found = await self._statuses(share.places)
            share.folders = {place: Folder(place.partition, found[place]) for place in sorted(share.places)}
            share.look_s = asyncio.get_running_loop().time() + self._settings.session_timeout_ms / 1_000
        return share is self._share

    async def _publish(self) -> None:
        share = self._share
        if share.look_s is not None and asyncio.get_running_loop().time() > share.look_s:
            share.look_s = None
            for place, records in (await self._statuses(share.folders)).items():
                share.folders[place].overtaken(records)
        now_ms = self._now_ms()
        outs = [out for folder in share.folders.values() for out in folder.due(now_ms)] + self._dead_letters
        self._dead_letters = []
        for result in await self._sender.send_each(outs) if outs else ():
            if isinstance(result, Refused):
                letter = dead_letter_of_refused(result.out, writer=SOURCE, reason=result.why, now_ms=now_ms)
                self._dead_letters.append(letter)
        cursors = {place: share.folders[place].cursor(at) for place, at in share.positions.items()}
        if cursors and share is self._share and await self._group.commit(cursors):
            share.positions.clear()
        metrics.JOBS.set(sum(map(len, self._share.folders.values())))

    async def _assigned(self, places: frozenset[Place]) -> None:
        """Start at the committed offset, also for a partition held before."""
        self._share.places = places
        self._share.known.set()

    async def _revoked(self, _: frozenset[Place]) -> None:
        """Drop the share: the next owner folds unpublished events again."""
        self._share = _Share()

    async def _statuses(self, places: Collection[Place]) -> dict[Place, list[Record]]:
        found: dict[Place, list[Record]] = {place: [] for place in places}
        if places:
            async with Tail(self._settings.bootstrap, FETCH_WAIT_MS) as tail:
                asked = {(JOB_STATUS.name, place.partition): WHOLE for place in places}
                for record in last_of_each_key((await tail.read(asked)).records):
                    found[Place(JOB_POD.name, record.partition)].append(record)
        return found
