"""What stands in a partition, back to some time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from aiokafka import TopicPartition

from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.kafka.times import first_since
from slacktide.streams.records import Record

PATIENCE_S = 2.0
"""A read back that gets nothing for this long ends with what it has."""
SPAN_RECORDS_MAX = 5_000
"""Per partition, where the broker does not know which record stood there 20 s ago: 100 nodes for 50 s."""


class History(Reader):
    """What stands in a partition, back to some time."""

    async def span(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, most: int | None = None
    ) -> list[Record]:
        """Records of that time and younger, up to an offset that is not included; None: all there are by now.

        Args:
            topic: its name.
            partition: its number.
            before: the offset behind the last one.
            since_ms: the time.
            most: only so many offsets before the end; None: however many there are.

        Raises:
            LogError: it cannot be read.

        """
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        begin = begin if most is None else max(begin, end - most)
        read = self._read(place, begin, end)
        return [record async for some in read for record in some if record.timestamp_ms >= since_ms]

    async def forth(
        self, topic: str, partition: int, *, before: int | None, since_ms: int
    ) -> AsyncGenerator[list[Record], None]:
        """The same as it is fetched: memory does not grow with the span.

        Raises:
            LogError: it cannot be read.

        """
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        async for some in self._read(place, begin, end):
            yield [record for record in some if record.timestamp_ms >= since_ms]

    async def back(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, at_once: int
    ) -> AsyncGenerator[list[Record], None]:
        """The same, the newest first, so many at once.

        Raises:
            LogError: it cannot be read.

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
            return  # the client's fetcher ends for good where an assignment goes before it has seen it
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
        consumer.unsubscribe()  # else it goes on fetching ahead


async def begin_of(consumer: Any, place: TopicPartition, before: int, since_ms: int) -> int:
    """The offset from which on a partition is of that time and younger; ``before`` where nothing is."""
    found = (await first_since(consumer, {place: since_ms}))[place]
    by_time = before if found is None else found.offset
    # The embedded broker knows no times and names offset 0: where that is the answer, never further than this.
    least = by_time or before - SPAN_RECORDS_MAX
    first = (await consumer.beginning_offsets([place]))[place]
    begin: int = min(before, max(least, first))
    return begin
