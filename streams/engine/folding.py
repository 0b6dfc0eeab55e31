"""Folds Job events into Job statuses, as a member of a consumer group that spreads the partitions over all workers.

A status is published before its offset is committed. After a rebalance the new owner reads the statuses, then the
events from the committed offset. It may fold an event twice, and never misses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import JOB_POD, JOB_STATUS
from slacktide.streams.engine import metrics
from slacktide.streams.engine.lifetime import Lifetime
from slacktide.streams.engine.quarantine import Marked
from slacktide.streams.engine.transport import Consumer, Turn
from slacktide.streams.jobs.folder import SOURCE, Folder
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail, last_of_each_key, present
from slacktide.streams.records import Out, Place, Record, dead_letter_of_refused

FETCH_WAIT_MS = 3_000
"""Kafka answers as soon as there is an event. The embedded broker looks at half of this time."""
BEATS = 3
"""As Kafka advises: nobody waits for the status of a Job for less than a few seconds."""
PUBLISH_S = 1.0
"""A Job's status is published at most once in this interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSettings:
    """Settings of a worker that folds Job events."""

    bootstrap: Cluster
    session_timeout_ms: int = 6_000
    """The group reassigns the partitions of a worker after this time without a heartbeat."""


@dataclass(slots=True)
class _Share:
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when ``places`` is known."""
    places: frozenset[Place] = frozenset()
    folders: dict[Place, Folder] = field(default_factory=dict)
    folded: dict[Place, int] = field(default_factory=dict)
    """Next offset by partition, where events were folded since the last publication."""
    published: dict[Place, int] = field(default_factory=dict)
    """Offset by partition from which the next owner must read."""
    look_s: float | None = None
    """When to look for statuses that the previous owner wrote late; monotonic."""


class Folding(Lifetime):
    """One membership of the group of workers that fold Job events."""

    def __init__(self, settings: FoldSettings, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._settings, self._now_ms = settings, now_ms
        self._share = _Share()
        self._dead_letters: list[Out] = []
        self._sender = Sender(settings.bootstrap, client_id="slacktide-jobs", acks="all")

    async def connect(self) -> None:
        """Connect. Raises LogError if Kafka is unavailable, or the topics' partitions differ."""
        counts = await present(self._settings.bootstrap, [JOB_POD.name, JOB_STATUS.name])
        if counts[JOB_POD.name] != counts[JOB_STATUS.name]:
            raise LogError(f"{JOB_POD.name} and {JOB_STATUS.name} differ in partitions: slacktide topics plan")
        await self._sender.connect([JOB_STATUS.name])

    async def close(self) -> None:
        """Disconnect."""
        self.forget_failure()
        metrics.JOBS.set(0)
        await self._sender.close()

    async def fold(self, turn: Turn, member: Consumer) -> None:
        """Fold a turn of events. Raises LogError if Kafka is unavailable."""
        share = await self._ready()
        if share is self._share:
            for place, taken in turn.items():
                self._dead_letters += share.folders[place].take(taken.records(*place), self._now_ms())
                share.folded[place] = taken.offsets[-1] + 1
                metrics.JOB_EVENTS.inc(len(taken))
        member.answered(turn, {})

    async def publish(self, member: Consumer) -> None:
        """Publish the statuses that changed, and let ``member`` commit. Raises LogError if Kafka is unavailable."""
        share = self._share
        if share.look_s is not None and asyncio.get_running_loop().time() > share.look_s:
            share.look_s = None
            for place, records in (await self._statuses(share.folders)).items():
                share.folders[place].overtaken(records)
        now_ms = self._now_ms()
        outs = [out for folder in share.folders.values() for out in folder.due(now_ms)] + self._dead_letters
        self._dead_letters = []
        cursors = {place: share.folders[place].cursor(at) for place, at in share.folded.items()}
        share.folded.clear()
        for result in await self._sender.send_each(outs) if outs else ():
            if isinstance(result, Refused):
                letter = dead_letter_of_refused(result.out, writer=SOURCE, reason=result.why, now_ms=now_ms)
                self._dead_letters.append(letter)
        if cursors and share is self._share:
            share.published |= cursors
            member.answered({}, cursors)
        metrics.JOBS.set(sum(map(len, self._share.folders.values())))

    @property
    def positions(self) -> dict[Place, int]:
        """Return the offset from which the next owner must read, by place."""
        return self._share.published

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Return offsets to commit; events need no notes."""
        return {place: (offset, "") for place, offset in offsets.items()}

    def assigned(self, places: frozenset[Place], _: int) -> None:
        """Start at the committed offset, also for a partition held before."""
        self._share.places = places
        self._share.known.set()

    def revoked(self) -> None:
        """Drop the share: the next owner folds unpublished events again."""
        self._share = _Share()

    async def _ready(self) -> _Share:
        """Return the share, once the statuses of newly assigned partitions are read."""
        share = self._share
        if not share.folders:
            try:
                async with asyncio.timeout(self._settings.session_timeout_ms / 1_000):
                    await share.known.wait()
            except TimeoutError as exc:
                raise LogError("the group did not name this worker's partitions in time") from exc
            found = await self._statuses(share.places)
            share.folders = {place: Folder(place.partition, found[place]) for place in sorted(share.places)}
            share.look_s = asyncio.get_running_loop().time() + self._settings.session_timeout_ms / 1_000
        return share

    async def _statuses(self, places: Collection[Place]) -> dict[Place, list[Record]]:
        found: dict[Place, list[Record]] = {place: [] for place in places}
        if places:
            async with Tail(self._settings.bootstrap, FETCH_WAIT_MS) as tail:
                asked = {(JOB_STATUS.name, place.partition): WHOLE for place in places}
                for record in last_of_each_key((await tail.read(asked)).records):
                    found[Place(JOB_POD.name, record.partition)].append(record)
        return found
