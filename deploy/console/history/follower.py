"""Follows Kafka into the history, and reads single records from it that the history lacks."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from slacktide.agents.clock import Clock
from slacktide.deploy.console import metrics
from slacktide.deploy.console.history.file import StoreError
from slacktide.deploy.console.history.recorder import FACTS, OBJECTS, STATE, Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.deploy.console.history.view import Gap
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka import Lost, Merged, Picked
from slacktide.streams.kept import answers_in
from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)
WAIT_S = 4.0
"""Timeout of a page; then it shows the history only."""


class LogRecords:
    """Reads a node's records by offset, over one connection that is opened on demand; without a cluster none."""

    def __init__(self, bootstrap: Cluster | None) -> None:
        self._picked = None if bootstrap is None else Picked(bootstrap, client_id="slacktide-console-records")
        self._connected = False
        self._turn = asyncio.Lock()

    async def read(self, node: str, at_ms: int, offsets: Mapping[Place, int]) -> Sequence[Record]:
        """Return the records at these offsets that belong to the node and are not later than the moment.

        A recreated topic has other records at these offsets. Empty while Kafka is unavailable. Node "": any.
        """
        if not offsets:
            return ()
        found: Sequence[Record] = ()
        try:
            async with asyncio.timeout(WAIT_S), self._turn:
                found = await self._read(offsets)
        except TimeoutError:
            await self.close()
        key = node.encode() if node else None
        return [answer for one in found if one.timestamp_ms <= at_ms for answer in answers_in(one, key)]

    async def _read(self, offsets: Mapping[Place, int]) -> Sequence[Record]:
        """Read over the existing connection, or a new one."""
        attempts = 0 if self._picked is None else 2 if self._connected else 1
        for _ in range(attempts):
            assert self._picked is not None
            try:
                if not self._connected:
                    await self._picked.connect()
                    self._connected = True
                return await self._picked.read(offsets)
            except LogError as exc:
                log.info("cannot read records from Kafka", extra={"why": str(exc)})
                await self.close()
        return ()

    async def close(self) -> None:
        """Disconnect."""
        self._connected = False
        if self._picked is not None:
            with suppress(LogError):
                await self._picked.close()


LOOK_MS = 10_000
"""Interval for finding topics that were missing. If one appears, reading restarts at the stored offsets."""
RETRY_S, RETRY_MAX_S = 0.5, 5.0
FIRST_BACK_MS = 90_000
"""The time that the first start reads back. Keyframes with pods are sent each minute."""
DAY_S = 86_400
"""No clock is that much ahead: what is newer in the file was damaged."""
FULL = "the history file could not be written"
AT_ONCE = 500
_FACTS = frozenset(topic.name for topic in FACTS)
ROLL_NODES = 25
"""Nodes that are rolled up per step: pages wait for up to 100 ms."""


@dataclass(slots=True)
class Follower:
    """Follows until cancelled; reconnects after errors. It is the only writer of the store."""

    bootstrap: Cluster
    store: Store
    clock: Clock
    trouble: str = "the topics are not read yet"
    """Why recording has stopped; "": it runs."""
    recorder: Recorder = field(init=False)
    """Data that is not stored yet, for ``queries.History``."""
    _known: Mapping[Place, int] = field(default_factory=dict)
    _begun_ms: int = 0
    _lost: list[Lost] = field(default_factory=list)
    _dropped_s: int = 0
    """Start of the first minute that could not be stored since the last success; 0: none."""

    def __post_init__(self) -> None:
        self.recorder = self._fresh()

    async def run(self) -> None:
        """Run until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        topics = ([one.name for one in each] for each in (STATE, FACTS, OBJECTS))
        reader = Merged(self.bootstrap, *topics, client_id="slacktide-console")
        try:
            while True:
                try:
                    await reader.connect()
                    await self._begin(reader)
                    backoff.reset()
                    await self._follow(reader)
                except (LogError, StoreError) as exc:
                    if self.trouble != str(exc):
                        what = "Kafka" if isinstance(exc, LogError) else "the history file"
                        log.warning("%s is unavailable: nothing is recorded", what, extra={"why": str(exc)})
                    self.trouble = str(exc)
                    await asyncio.sleep(backoff.next_s())
        finally:
            await reader.close()

    def _fresh(self) -> Recorder:
        now_s = self.clock.wall_ms() // 1_000
        begin_s = newest_s if (newest_s := self.store.newest_s) and newest_s < now_s + DAY_S else now_s
        texts = {text: number for number, text in enumerate(self.store.texts())}
        return Recorder(begin_s, texts, first=not self.store.newest_s)

    async def _begin(self, reader: Merged) -> None:
        """Read back records that are not stored. Stored records only restore state."""
        recorder, cursors = self._fresh(), self.store.cursors()
        self._begun_ms = recorder.begin_s * 1_000
        self._known = {place: following for place, (following, _) in cursors.items()}
        rewound = {place: rewind for place, (_, rewind) in cursors.items()}
        if self.store.lost:
            self.store.gap(Gap(from_ms=0, to_ms=self._begun_ms, what="all", reason=self.store.lost))
            self.store.lost = ""
        lost = await reader.begin(rewound, self._begun_ms - FIRST_BACK_MS)
        self._lost = [one for one in lost if one.begin < one.wanted or one.begin > self._known[one.place]]
        self.recorder = recorder

    async def _follow(self, reader: Merged) -> None:
        """Follow until a missing topic appears."""
        looked_ms = self.clock.wall_ms()
        while True:
            if self.clock.wall_ms() - looked_ms >= LOOK_MS:
                looked_ms = self.clock.wall_ms()
                if await reader.has_grown():
                    return
            records, until_ms = await reader.read(self.clock.wall_ms())
            self.trouble = ""
            metrics.count(records)
            for number, record in enumerate(records):
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)  # yield to the pages
                self._take(record)
                await self._store()
            if not self._lost:
                self.recorder.advance(until_ms)
            await self._store()
            await asyncio.to_thread(self.store.roll, ROLL_NODES)

    def _take(self, record: Record) -> None:
        older = record.timestamp_ms < self._begun_ms
        # At the first start, recording begins here; earlier records only set state.
        known = older and record.offset < self._known.get(record.place, record.offset + (not self._known))
        if self._lost and not older:
            known = record.topic not in _FACTS
            if not known:  # continue after the gap
                at_ms = record.timestamp_ms
                self.recorder.jump(at_ms // 1_000)
                for one in self._lost:
                    what = f"{one.place.topic} {one.place.partition}"
                    why = f"offset {self._known[one.place]} is no longer in Kafka, which continues at {one.begin}"
                    self.store.gap(Gap(from_ms=self._begun_ms, to_ms=at_ms, what=what, reason=why))
                log.warning("records were lost", extra={"partitions": len(self._lost), "until_ms": at_ms})
                self._lost = []
        self.recorder.take(record, known=known)

    async def _store(self) -> None:
        while self.recorder.minutes:
            minute = self.recorder.minutes[0]
            try:
                await asyncio.to_thread(self.store.add, minute)
            except StoreError as exc:
                self._dropped_s = self._dropped_s or minute.start_s
                log.error("cannot write a minute to the history file", extra={"why": str(exc)})  # noqa: TRY400 - no trace is needed
                self.trouble = str(exc)
                metrics.DROPPED.inc()
            else:
                if self._dropped_s:
                    gap = Gap(from_ms=self._dropped_s * 1_000, to_ms=minute.start_s * 1_000, what="all", reason=FULL)
                    self.store.gap(gap)
                    self._dropped_s = 0
            self.recorder.minutes.remove(minute)  # from here on it is read from the file
