"""Reads without a group: latest state whole, and what stands before a position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.errors import LogError
from slacktide.streams.connecting import client
from slacktide.streams.kafka.common import FETCH_BYTES_MAX, POLL_S, close, record_of, trouble
from slacktide.streams.records import Record

ASKED_MS = 10_000
"""A broker that takes a connection and does not answer is given up after this."""
READ_S = 30.0
"""Latest state that cannot be read whole within this is not there to be read."""
PATIENCE_S = 2.0
"""A read back that gets nothing for this long ends with what it has."""
SPAN_RECORDS_MAX = 5_000
"""Per partition, where the broker cannot say which record stood there 20 s ago: 100 nodes for 50 s."""


async def partition_counts(bootstrap: str, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each topic has; 0: there is no such topic. Asking creates none.

    Raises:
        LogError: nobody answers.

    """
    admin = AIOKafkaAdminClient(**client(bootstrap), request_timeout_ms=ASKED_MS)
    with trouble(f"cannot list the topics of {bootstrap}"):
        try:
            await admin.start()
            wanted = list(topics)
            there = set(await admin.list_topics()).intersection(wanted)
            told = await admin.describe_topics(sorted(there)) if there else []
        finally:
            await admin.close()
    return dict.fromkeys(wanted, 0) | {topic["topic"]: len(topic["partitions"]) for topic in told}


async def present(bootstrap: str, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has.

    Raises:
        LogError: nobody answers, or there is no such topic.

    """
    counts = await partition_counts(bootstrap, topics)
    if absent := [name for name, count in counts.items() if not count]:
        raise LogError(f"no such topics: {', '.join(absent)}; `slacktide topics apply` makes them")
    return counts


class Reader:
    """A consumer without a group."""

    def __init__(self, bootstrap: str, fetch_wait_ms: int) -> None:
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._open: AIOKafkaConsumer[bytes, bytes] | None = None

    @property
    def _consumer(self) -> AIOKafkaConsumer[bytes, bytes]:
        assert self._open is not None, "enter it first"
        return self._open

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LogError: nobody answers.

        """
        consumer = AIOKafkaConsumer(
            **client(self._bootstrap),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=self._fetch_wait_ms,
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
        )
        with trouble(f"cannot read from {self._bootstrap}"):
            try:
                await consumer.start()
            except BaseException:
                await close(consumer)
                raise
        self._open = consumer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        if self._open is not None:
            await close(self._open)

    async def at_end(self, place: TopicPartition) -> bool:
        """By what fetching tells: the embedded broker's answer to the plain question may be too low."""
        end = self._consumer.highwater(place)
        position: int = await self._consumer.position(place)
        return end is not None and position >= end


class Latest(Reader):
    """Compacted topics: read whole, then followed."""

    def __init__(self, bootstrap: str, topics: Sequence[str], fetch_wait_ms: int) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._topics = topics
        self._stale = False

    async def whole(self, partitions: Mapping[str, int]) -> list[Record]:
        """All that they hold, each partition in order.

        Args:
            partitions: how many each topic has.

        Raises:
            LogError: it cannot be read to its end.

        """
        consumer = self._consumer
        with trouble(f"cannot read {', '.join(self._topics)} whole"):
            places = [TopicPartition(topic, number) for topic in self._topics for number in range(partitions[topic])]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            read: list[Record] = []
            async with asyncio.timeout(READ_S):
                while [place for place in places if not await self.at_end(place)]:
                    read += await self._polled()
        return read

    async def more(self) -> list[Record]:
        """What has come since, waiting a moment for it.

        Raises:
            LogError: it cannot be read.

        """
        with trouble(f"cannot follow {', '.join(self._topics)}"):
            if not self._stale:
                return await self._polled()
            self._stale = False
            await self._consumer.seek_to_beginning(*self._consumer.assignment())
            return last_of_each_key(await self._polled())

    def again(self) -> None:
        """Read from the beginning at the next turn: the log may be another one, made anew."""
        self._stale = True

    async def _polled(self) -> list[Record]:
        fetched = await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000))
        return [record_of(read) for batch in fetched.values() for read in batch]


def last_of_each_key(records: Iterable[Record]) -> list[Record]:
    """What is said now."""
    return list({(record.topic, record.partition, record.key): record for record in records}.values())


class History(Reader):
    """What stands in a partition, back to some time."""

    async def span(self, topic: str, partition: int, *, before: int | None, since_ms: int) -> list[Record]:
        """Records of that time and younger, up to an offset that is not included; None: all there are by now.

        Raises:
            LogError: it cannot be read.

        """
        read = self.forth(topic, partition, before=before, since_ms=since_ms)
        return [record async for some in read for record in some]

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
            consumer.assign([place])
            consumer.seek(place, begin)
        idle_s = 0.0
        while idle_s < PATIENCE_S:
            with trouble(f"cannot read back {place.topic}/{place.partition}"):
                if await consumer.position(place) >= end:
                    break
                fetched = await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
            yield [record_of(record) for batch in fetched.values() for record in batch if record.offset < end]
            idle_s = 0.0 if fetched else idle_s + POLL_S
        consumer.unsubscribe()  # else it goes on fetching ahead


async def begin_of(consumer: AIOKafkaConsumer[bytes, bytes], place: TopicPartition, before: int, since_ms: int) -> int:
    """The offset from which on a partition is of that time and younger; ``before`` where nothing is."""
    found = (await consumer.offsets_for_times({place: since_ms}))[place]
    by_time = before if found is None else found.offset
    # The embedded broker knows no times and names offset 0: where that is the answer, never further than this.
    least = by_time or before - SPAN_RECORDS_MAX
    first = (await consumer.beginning_offsets([place]))[place]
    begin: int = min(before, max(least, first))
    return begin
