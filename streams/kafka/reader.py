"""A consumer without a group, at positions that its owner sets, and readers of single offsets and single records.

It detects outages and re-created topics. Shared by all readers: errors, lookups by time, and how often to fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import OffsetAndTimestamp

from slacktide.schemas.bounds import clamped_ms
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.connecting import METADATA_MS, client, close_consumer, reason_of
from slacktide.streams.kafka.fetched import Naming
from slacktide.streams.kept import answers_in
from slacktide.streams.records import Place, Record

POLL_S = 0.2
FETCH_BYTES_MAX = 4 << 20
_partitioner = DefaultPartitioner()


@contextmanager
def trouble(what: str) -> Iterator[None]:
    """Raise the client's errors as a ``LogError`` that names what failed."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as exc:
        raise LogError(f"{what}: {str(exc) or type(exc).__name__}") from exc


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, by Kafka's default partitioner."""
    partition: int = _partitioner(key.encode(), list(range(partitions)), [])
    return partition


def record_of(read: ConsumerRecord[bytes, bytes]) -> Record:
    """Return a record as the worker's type."""
    return Record(
        topic=read.topic,
        partition=read.partition,
        offset=read.offset,
        timestamp_ms=read.timestamp,
        key=read.key,
        value=read.value,
        headers=read.headers,
    )


def each_answer(read: Iterable[ConsumerRecord[bytes, bytes]]) -> Iterator[Record]:
    """Yield records as the worker's type, each answer apart."""
    return (answer for one in read for answer in answers_in(record_of(one)))


async def first_since(
    consumer: AIOKafkaConsumer[bytes, bytes], since_ms: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
    """Return each partition's first record since a time; None: it has none. Raises KafkaError if there is no answer.

    The client refuses a negative time, which a wrong clock or a long ``--since`` may cause.
    """
    asked = {place: clamped_ms(time_ms) for place, time_ms in since_ms.items()}
    found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await consumer.offsets_for_times(asked) if asked else {}
    return found


async def since(
    consumer: AIOKafkaConsumer[bytes, bytes], ends: Mapping[TopicPartition, int], since_ms: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record since this time; its end if there is none."""
    found = await first_since(consumer, dict.fromkeys(ends, since_ms))
    # Without such a record, Kafka returns None, and the embedded broker a timestamp of -1.
    return {place: at.offset if at is not None and at.timestamp >= 0 else ends[place] for place, at in found.items()}


IDLE_AFTER_S: Final = 1.0
IDLE_WAIT_MS: Final = 2_500
"""Kafka holds a fetch this long, and answers as soon as there is a record. The embedded broker looks at half of it."""
LOOK_S: Final = 0.2
"""How often the client checks for other work."""
LATER_S: Final = 0.5
"""So long after a held fetch is answered, so that it checks once."""


class Pace:
    """The pace of one consumer; ``fetch_wait_ms``: how long the broker may hold a fetch while records arrive.

    ``gather_ms``: how long the next fetch waits after one that found records; 0: it does not.
    """

    def __init__(self, fetch_wait_ms: int, gather_ms: int = 0) -> None:
        self._fetch_wait_ms, self._gather_ms = fetch_wait_ms, gather_ms
        self._empty_s = 0.0

    def polled(self, consumer: AIOKafkaConsumer[bytes, bytes], *, found: bool, wait_s: float) -> None:
        """Count a poll that waited ``wait_s`` at most, and set the client's fetch wait."""
        self._empty_s = 0.0 if found else self._empty_s + wait_s
        fetcher = consumer._fetcher  # noqa: SLF001 - it has no public method
        if self._gather_ms:
            fetcher.gather(self._gather_ms / 1_000)
        if self._empty_s > IDLE_AFTER_S - 0.001:
            wait_ms, look_s = max(self._fetch_wait_ms, IDLE_WAIT_MS), IDLE_WAIT_MS / 1_000 + LATER_S
        else:
            wait_ms, look_s = self._fetch_wait_ms, LOOK_S
        fetcher._fetch_max_wait_ms, fetcher._fetcher_timeout = wait_ms, look_s  # noqa: SLF001


REQUEST_MS = 5_000
"""A reader notices missing or re-created topics within this time; the client's 5 min would be too long."""
FETCH_WAIT_MS = 100
Fetched: TypeAlias = dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]


class Reader:
    """A consumer without a group. Reconnect after any error.

    The broker may hold a fetch for ``fetch_wait_ms``. ``lost``: at a position that no longer exists, continue from the
    earliest record, or fail. ``partition_bytes_max``: of one partition in one fetch. ``gather_ms``: once the reader
    follows, how long the next fetch waits after one that found records, so that many share it; 0: it does not.
    ``naming``: which records are needed; None: all. ``silences``: after so many polls without a record it checks that
    the broker answers.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        fetch_wait_ms: int,
        *,
        client_id: str = "slacktide-reader",
        lost: Literal["earliest", "none"] = "earliest",
        partition_bytes_max: int = FETCH_BYTES_MAX,
        gather_ms: int = 0,
        naming: Naming | None = None,
        silences: int = 1,
    ) -> None:
        self._naming, self._silences, self._silent = naming, silences, 0
        self._bootstrap, self._fetch_wait_ms, self._client_id = bootstrap, fetch_wait_ms, client_id
        self._lost, self._partition_bytes_max = lost, partition_bytes_max
        self._open: AIOKafkaConsumer[bytes, bytes] | None = None
        self._fetched_ms: tuple[int | None, ...] = ()
        """Time of each partition's last fetch at the last check."""
        self._gather_ms = gather_ms
        self._pace = Pace(fetch_wait_ms, gather_ms)

    async def connect(self) -> None:
        """Reconnect. Raises LogError if no broker is reachable, or a topic does not exist."""
        await self.close()
        consumer = AIOKafkaConsumer(
            **client(self._bootstrap),
            client_id=self._client_id,
            group_id=None,
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=METADATA_MS,
            fetch_max_wait_ms=self._fetch_wait_ms,
            max_partition_fetch_bytes=self._partition_bytes_max,
            enable_auto_commit=False,
            auto_offset_reset=self._lost,
            value_deserializer=self._naming,
        )
        try:
            async with asyncio.timeout(2 * REQUEST_MS / 1000):
                await consumer.start()
                await self._begin(consumer)
        except BaseException as exc:
            await close_consumer(consumer)
            if isinstance(exc, LogError | KafkaError | OSError | TimeoutError):
                why = str(exc) if isinstance(exc, LogError) else reason_of(exc)
                raise LogError(f"{self._bootstrap}: {why}") from exc
            raise
        self._open, self._fetched_ms, self._silent = consumer, (), 0
        self._pace = Pace(self._fetch_wait_ms, self._gather_ms)

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._open = self._open, None
        if consumer is not None:
            await close_consumer(consumer)

    async def __aenter__(self) -> Self:
        """Connect, as ``connect``."""
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self.close()

    async def check(self) -> None:
        """Check that the broker answers, and that no topic was re-created. Call it when no records arrive.

        A broker that lost its data may not answer a fetch at an offset that no longer exists. Raises LogError if no
        fetch was answered since the last check, or a topic was re-created.
        """
        places = sorted(self._consumer.assignment())
        for place in places:
            end = self._consumer.highwater(place)
            if end is not None and await self._consumer.position(place) > end:
                raise LogError(f"{self._bootstrap}: {place.topic} was re-created")
        fetched_ms = tuple(self._consumer.last_poll_timestamp(place) for place in places)
        if fetched_ms == self._fetched_ms:
            raise LogError(f"{self._bootstrap}: no fetch was answered")
        self._fetched_ms = fetched_ms

    async def _begin(self, consumer: AIOKafkaConsumer[bytes, bytes]) -> None:
        """Seek to the start positions, for readers that know them when they connect."""

    @property
    def _consumer(self) -> AIOKafkaConsumer[bytes, bytes]:
        assert self._open is not None, "connect it first"
        return self._open

    async def _poll(self, *places: TopicPartition, most: int | None = None, wait_s: float = POLL_S) -> Fetched:
        fetched: Fetched = await self._consumer.getmany(*places, timeout_ms=int(wait_s * 1_000), max_records=most)
        return fetched

    async def _fetched(self, silence_ms: int) -> Fetched:
        """Poll all partitions; check the broker if there is nothing for long. Raises LogError if it is unreachable."""
        try:
            fetched: Fetched = await self._consumer.getmany(timeout_ms=silence_ms)
            if self._gather_ms:
                self._consumer._fetcher.gather(self._gather_ms / 1_000)  # noqa: SLF001 - it has no public method
            self._silent = 0 if fetched else self._silent + 1
            if self._silent == self._silences:
                self._silent = 0
                await self.check()
        except KafkaError as exc:
            raise LogError(f"{self._bootstrap}: {exc!r}") from exc
        return fetched

    async def _follow(self, most: int | None = None, wait_s: float = POLL_S) -> Fetched:
        """Poll all partitions; idle readers of rarely changing topics fetch less often."""
        fetched = await self._poll(most=most, wait_s=wait_s)
        self._pace.polled(self._consumer, found=bool(fetched), wait_s=wait_s)
        return fetched

    async def _at_end(self, place: TopicPartition) -> bool:
        """Check for the end by fetching: the embedded broker may list an end that is too low."""
        end = self._consumer.highwater(place)
        position: int = await self._consumer.position(place)
        return end is not None and position >= end


async def partitions_of(consumer: AIOKafkaConsumer[bytes, bytes], topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic, in order. Raises LogError if there is no such topic."""
    if topic not in await consumer.topics():
        raise LogError(f"topic {topic} does not exist; create it: slacktide topics apply")
    numbers = await consumer._client._wait_on_metadata(topic)  # noqa: SLF001 - as subscribe() does
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def stand(consumer: AIOKafkaConsumer[bytes, bytes], positions: Mapping[TopicPartition, int]) -> None:
    """Read exactly these partitions, from these positions."""
    consumer.assign(list(positions))
    for place, position in positions.items():
        consumer.seek(place, position)


async def ends_of(
    consumer: AIOKafkaConsumer[bytes, bytes], places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Assign the partitions, and return the offset of each one's next record, by fetching.

    The embedded broker lists an end that is too low if its last batch holds several records.
    """
    stand(consumer, await consumer.end_offsets(list(places)) if places else {})
    while unknown := [place for place in places if consumer.highwater(place) is None]:
        await consumer.getmany(*unknown, timeout_ms=FETCH_WAIT_MS)
    return {place: consumer.highwater(place) for place in places}


ENDS_S = 1.5
"""A slower answer would delay the next tick."""


class Ends(Reader):
    """Fetches offsets, and reads no records."""

    def __init__(self, bootstrap: Cluster) -> None:
        super().__init__(bootstrap, 0)

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the current end offsets of places. Raises LogError if there is no answer in time."""
        asked = [TopicPartition(*place) for place in places]
        if not asked:
            return {}
        with trouble(f"cannot read the end of {_topics(asked)}"):
            async with asyncio.timeout(ENDS_S):
                ends = await self._consumer.end_offsets(asked)
        return {Place(*place): offset for place, offset in ends.items()}

    async def begins(self, group: str, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offsets from which a group's member reads newly assigned places. Raises LogError as ``ends``."""
        asked = [TopicPartition(*place) for place in places]
        admin = AIOKafkaAdminClient(**client(self._bootstrap))
        with trouble(f"cannot read the offsets of group {group} in {_topics(asked)}"):
            async with asyncio.timeout(ENDS_S):
                try:
                    await admin.start()
                    found = await admin.list_consumer_group_offsets(group, partitions=asked)
                finally:
                    await admin.close()
                first = await self._consumer.beginning_offsets(asked)
        committed = {place: found[place].offset for place in asked if place in found}
        return {Place(*place): max(first[place], committed.get(place, -1)) for place in asked}


def _topics(places: Iterable[TopicPartition]) -> str:
    return " and ".join(sorted({place.topic for place in places}))


READ_S = 2.0
"""Records that take longer are omitted."""
PICKED_WAIT_MS = 100
PICKED_BYTES_MAX = 64 << 10
"""Per fetch, of which one record is needed."""


class Picked(Reader):
    """Reads records with known offsets, one call at a time."""

    def __init__(self, bootstrap: Cluster, *, client_id: str) -> None:
        super().__init__(bootstrap, PICKED_WAIT_MS, client_id=client_id, partition_bytes_max=PICKED_BYTES_MAX)

    async def read(self, offsets: Mapping[Place, int]) -> list[Record]:
        """Return the records at these offsets; omit those that no longer exist. Raises LogError without Kafka."""
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        found: list[Record] = []
        with trouble(f"cannot read from {self._bootstrap}"):
            begins = await self._consumer.beginning_offsets(list(wanted))
            wanted = {place: offset for place, offset in wanted.items() if begins[place] <= offset}
            if not wanted:
                return found
            stand(self._consumer, wanted)
            try:
                async with asyncio.timeout(READ_S):
                    while wanted:
                        for place, records in (await self._poll(*wanted, most=len(wanted))).items():
                            found += [record_of(one) for one in records if one.offset == wanted.get(place)]
                            wanted.pop(place, None)
            except TimeoutError:  # compacted away at the end of its partition
                pass
            finally:
                self._consumer.unsubscribe()  # otherwise it fetches ahead
        return found
