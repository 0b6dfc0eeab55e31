"""Reads a partition's records back to some time, or follows partitions from some time on, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import POLL_S, first_since, record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.records import Record

PATIENCE_S = 2.0
"""A read without records for this long ends."""
SPAN_RECORDS_MAX = 5_000
"""Per partition, if the broker cannot look up offsets by time: 100 nodes for 50 s."""


class History(Reader):
    """Reads a partition's records back to some time."""

    async def span(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, most: int | None = None
    ) -> list[Record]:
        """Return records since this time, before the offset ``before``; None: the current end.

        ``most``: offsets before the end; None: unlimited.

        Raises:
            LogError: the partition cannot be read.
        """
        read = self.forth(topic, partition, before=before, since_ms=since_ms, most=most)
        return [record async for some in read for record in some]

    async def forth(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, most: int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the same records as they are fetched, in bounded memory.

        Raises:
            LogError: the partition cannot be read.
        """
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        begin = begin if most is None else max(begin, end - most)
        async for some in self._read(place, begin, end):
            yield [record for record in some if record.timestamp_ms >= since_ms]

    async def back(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, at_once: int
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the same records, the newest first, ``at_once`` at a time.

        Raises:
            LogError: the partition cannot be read.
        """
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        while begin < end:
            first = max(begin, end - at_once)
            read = [record async for some in self._read(place, first, end) for record in some]
            yield [record for record in reversed(read) if record.timestamp_ms >= since_ms]
            end = first

    async def _bounds(self, place: TopicPartition, before: int | None, since_ms: int) -> tuple[int, int]:
        with trouble(f"cannot read back {place.topic}/{place.partition}"):
            end = (await self._consumer.end_offsets([place]))[place] if before is None else before
            return await begin_of(self._consumer, place, end, since_ms), end

    async def _read(self, place: TopicPartition, begin: int, end: int) -> AsyncGenerator[list[Record], None]:
        if begin >= end:
            return  # the client's fetcher ends if an assignment is removed before it was seen
        consumer = self._consumer
        with trouble(f"cannot read back {place.topic}/{place.partition}"):
            stand(consumer, {place: begin})
        idle_s = 0.0
        while idle_s < PATIENCE_S:
            with trouble(f"cannot read back {place.topic}/{place.partition}"):
                if await consumer.position(place) >= end:
                    break
                fetched = await self._poll()
            yield [record_of(record) for batch in fetched.values() for record in batch if record.offset < end]
            idle_s = 0.0 if fetched else idle_s + POLL_S
        consumer.unsubscribe()  # otherwise it fetches ahead


async def begin_of(consumer: Any, place: TopicPartition, before: int, since_ms: int) -> int:
    """Return the first offset since this time; ``before`` if there is none."""
    found = (await first_since(consumer, {place: since_ms}))[place]
    by_time = before if found is None else found.offset
    # The embedded broker does not know times and returns 0: then at most this many records.
    least = by_time or before - SPAN_RECORDS_MAX
    first = (await consumer.beginning_offsets([place]))[place]
    begin: int = min(before, max(least, first))
    return begin


class Follower(Reader):
    """Follows some partitions of one topic."""

    def __init__(self, bootstrap: Cluster, topic: str, fetch_wait_ms: int) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._topic = topic

    async def take(self, partition: int, since_ms: int) -> None:
        """Add a partition, from this time on. Raises LogError if there is no answer."""
        place = TopicPartition(self._topic, partition)
        self._pace.polled(self._consumer, found=True, wait_s=0.0)  # a held fetch delays the next request
        with trouble(f"cannot follow {self._topic}/{partition}"):
            [end] = (await self._consumer.end_offsets([place])).values()
            begin = await begin_of(self._consumer, place, end, since_ms)
            stand(self._consumer, {**await self._positions(), place: begin})

    async def leave(self, partition: int) -> None:
        """Remove a partition."""
        with trouble(f"cannot follow {self._topic}"):
            positions = await self._positions()
            positions.pop(TopicPartition(self._topic, partition), None)
            stand(self._consumer, positions)

    async def some(self, most: int, wait_s: float = POLL_S) -> list[Record]:
        """Wait for records, ``wait_s`` at most, and return them. Raises LogError if the topic cannot be read."""
        if not self._consumer.assignment():
            await asyncio.sleep(POLL_S)
            return []
        with trouble(f"cannot follow {self._topic}"):
            fetched = await self._follow(most, wait_s)
        return [record_of(read) for batch in fetched.values() for read in batch]

    async def _positions(self) -> dict[TopicPartition, int]:
        """Return all positions: the client forgets them when partitions are assigned."""
        return {place: await self._consumer.position(place) for place in self._consumer.assignment()}
