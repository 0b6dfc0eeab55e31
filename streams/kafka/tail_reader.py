"""Follows topics from their end, shortly before it, or their beginning, without a group; reconnects after errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.common import record_of, since
from slacktide.streams.kafka.reader import Reader, partitions_of, stand
from slacktide.streams.records import Record

FETCH_WAIT_MS = 200
SILENCE_MS = 1_000 + 2 * FETCH_WAIT_MS
AHEAD_MS = 1_000
"""How much clocks may differ."""


class TailReader(Reader):
    """For latest state that is republished: a read from the end returns nothing outdated. Reconnect after any error.

    ``whole``: read topics from their beginning. ``back_ms``: also read records published this shortly before
    ``now_ms``. Records with a later time are skipped, because their age is unknown.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        topics: Sequence[str],
        *,
        client_id: str,
        whole: bool = False,
        back_ms: int = 0,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(bootstrap, FETCH_WAIT_MS, client_id=client_id, lost="none")
        self._topics = tuple(topics)
        self._whole = whole
        self._back_ms, self._now_ms = back_ms, now_ms
        self._recent = range(0)
        """Timestamps of earlier records that are read."""
        self._until: dict[TopicPartition, int] = {}
        """Ends of partitions with earlier records, at connecting."""

    async def read(self) -> list[Record]:
        """Wait for records; return none after a second or two.

        Raises:
            LogError: Kafka is unreachable, or a topic was re-created.
        """
        try:
            got = await self._consumer.getmany(timeout_ms=SILENCE_MS)
            if not got:
                await self.check()
        except KafkaError as exc:
            raise LogError(f"{self._bootstrap}: {exc!r}") from exc
        return [record_of(one) for tp, records in got.items() for one in records if self._is_wanted(tp, one)]

    async def caught_up(self) -> bool:
        """Check whether all records are read that existed at connecting."""
        return all([await self._consumer.position(tp) >= end for tp, end in self._until.items()])

    async def _begin(self, consumer: Any) -> None:
        tps = [place for topic in self._topics for place in await partitions_of(consumer, topic)]
        ends = await consumer.end_offsets(tps)
        starts = await consumer.beginning_offsets(tps) if self._whole else await self._a_little_before(consumer, ends)
        stand(consumer, starts)
        self._until = {tp: end for tp, end in ends.items() if end > starts[tp]}

    async def _a_little_before(self, consumer: Any, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self._now_ms is None:
            return dict(ends)
        now_ms = self._now_ms()
        self._recent = range(now_ms - self._back_ms, now_ms + AHEAD_MS)
        return await since(consumer, ends, self._recent.start)

    def _is_wanted(self, tp: TopicPartition, record: Any) -> bool:
        """Skip earlier records that are not recent: a broker that knows no times returns all."""
        if self._whole or record.offset >= self._until.get(tp, 0):
            return True
        return record.timestamp in self._recent


log = logging.getLogger(__name__)

NOTHING_YET = "the topics are not read yet"
RETRY_S, RETRY_MAX_S = 0.5, 5.0
PAUSED_S = 5.0
"""After a pause this long, old records would count as new: the reader reconnects."""


class Monotonic(Protocol):
    """A clock that never goes back."""

    def mono_ns(self) -> int:
        """Return nanoseconds since some instant."""


class Following:
    """Follows topics by one reader, which is not shared; ``away``: the log line's text about outages."""

    def __init__(self, reader: TailReader, *, away: str, clock: Monotonic) -> None:
        self.trouble = NOTHING_YET
        """Why nothing is read; "": topics are read."""
        self._reader = reader
        self._away = away
        self._clock = clock

    async def run(self, begun: Callable[[], None], receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """Run forever.

        ``begun`` is called after each connection: earlier records may be outdated. ``receive`` takes records, and their
        time in monotonic seconds.
        """
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        try:
            while True:
                try:
                    await self._reader.connect()
                    begun()
                    if self.trouble:
                        log.info("the topics are read")
                    self.trouble = ""
                    backoff.reset()
                    await self._read(receive)
                except LogError as exc:
                    if self.trouble in ("", NOTHING_YET):
                        log.warning("Kafka is unreachable: %s", self._away, extra={"why": str(exc)})
                    self.trouble = str(exc)
                    await asyncio.sleep(backoff.next_s())
        finally:
            await self._reader.close()

    async def _read(self, receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """Read until this process has paused. Raises LogError if Kafka is unreachable."""
        looked_s = self._clock.mono_ns() / 1e9
        while True:
            records = await self._reader.read()
            now_s = self._clock.mono_ns() / 1e9
            if now_s > looked_s + PAUSED_S:
                return
            looked_s = now_s
            await receive(records, now_s)
