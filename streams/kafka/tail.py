"""Reads topics without a group: to their end, from their end on, or for display."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from slacktide.schemas.backoff import Backoff, Reasons
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.admin import REQUEST_MS, _asking, _consumer
from slacktide.streams.kafka.reader import (
    POLL_S,
    Reader,
    each_answer,
    ends_of,
    first_since,
    partition_of,
    partitions_of,
    record_of,
    since,
    stand,
    trouble,
)
from slacktide.streams.kept import answers_in
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

READ_S = 30.0
"""Partitions must be read to their end within this time."""
END_POLL_S = 0.02
"""How often to check for the end: the client reports nothing of a partition without records."""
TAIL_RECORDS_MAX = 60_000
"""For reads by time: 100 nodes for 10 min. The embedded broker cannot look up by time."""
WHOLE = 0
"""As a time: all that is kept."""

Place = tuple[str, int]
Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The result of a read."""

    records: list[Record]
    """Each partition in order, since the requested time."""
    short: list[Place]
    """Partitions with more records of that time than the limit."""


def places_of(partitions: Mapping[str, int], since_ms: Mapping[str, int | None]) -> dict[Place, int | None]:
    """Return all partitions of these topics, with the time from which each is read."""
    return {(topic, number): since for topic, since in since_ms.items() for number in range(partitions[topic])}


def last_of_each_key(records: Iterable[Record]) -> list[Record]:
    """Return the newest record of each key, and each unreadable batch."""
    newest: dict[tuple[str, int, bytes | int | None], Record] = {}
    for record in records:
        name = record.offset if isinstance(record.value, UnreadableBatch) else record.key
        newest[record.topic, record.partition, name] = record
    return list(newest.values())


class Tail(Reader):
    """Reads partitions to their end, then follows them.

    Of partitions that are not read completely, ``most`` limits the records, and those before the requested time are
    omitted. None: all behind the first of that time, whatever their timestamps. ``gather_ms``: as of ``Reader``.
    """

    def __init__(self, bootstrap: Cluster, fetch_wait_ms: int, *, most: int | None = None, gather_ms: int = 0) -> None:
        super().__init__(bootstrap, fetch_wait_ms, gather_ms=gather_ms)
        self._most = most
        self._wanted: Wanted | None = None
        self._stale = False

    async def read(
        self,
        since_ms: Mapping[Place, int | None],
        wanted: Wanted | None = None,
        offsets: Mapping[Place, int] = MappingProxyType({}),
    ) -> Read:
        """Read partitions to their end. Raises LogError if one of them cannot be read to its end.

        ``since_ms``: by partition, the first timestamp; WHOLE: all records; None: only new ones. ``wanted`` filters
        records, also those of ``more``, except unreadable batches. ``offsets``: where to start instead; all records if
        it is beyond the end, because the topic was re-created.
        """
        places = {TopicPartition(*place): since for place, since in since_ms.items()}
        topics = ", ".join(sorted({place.topic for place in places}))
        self._wanted, self._stale = wanted, False
        read: list[Record] = []
        with trouble(f"cannot read {topics} from {self._bootstrap}"):
            short = await self._seek(places, offsets)
            async with asyncio.timeout(READ_S):
                while [place for place in places if not await self._at_end(place)]:
                    for place, batch in (await self._poll(wait_s=END_POLL_S)).items():
                        since = (places[place] or WHOLE) if self._most is not None else None
                        read += self._taken(one for one in batch if since is None or one.timestamp >= since)
        return Read(records=read, short=short)

    async def more(self, wait_s: float = POLL_S) -> list[Record]:
        """Wait for newer records, ``wait_s`` at most, and return them. Raises LogError if the topics cannot be read."""
        with trouble(f"cannot read from {self._bootstrap}"):
            again, self._stale = self._stale, False
            if again:
                places = self._consumer.assignment()
                self._consumer.assign(list(places))  # ends a fetch that the broker holds
                await self._consumer.seek_to_beginning(*places)
            read = [one for batch in (await self._follow(wait_s=wait_s)).values() for one in self._taken(batch)]
            return last_of_each_key(read) if again else read

    def again(self) -> None:
        """Read from the beginning in the next turn, because topics may have been re-created."""
        self._stale = True

    def _taken(self, batch: Iterable[ConsumerRecord[bytes, bytes]]) -> Iterable[Record]:
        records, wanted = each_answer(batch), self._wanted
        if wanted is None:
            return records
        return (record for record in records if isinstance(record.value, UnreadableBatch) or wanted(record))

    async def _seek(self, places: Mapping[TopicPartition, int | None], offsets: Mapping[Place, int]) -> list[Place]:
        consumer, short = self._consumer, []
        # Otherwise the client waits 0.1 s for each topic that it does not know yet.
        await consumer._client.set_topics({place.topic for place in places})  # noqa: SLF001
        begins = await consumer.beginning_offsets(list(places))
        ends = await consumer.end_offsets(list(places))
        found = await first_since(consumer, {place: since for place, since in places.items() if since})
        positions = {}
        for place, from_ms in places.items():
            begin: int = begins[place] if from_ms == WHOLE else ends[place]
            if from_ms:
                at = found.get(place)
                # The embedded broker knows no times and returns offset 0, or an expired one.
                by_time: int = ends[place] if at is None or at.offset < 0 else max(at.offset, begins[place])
                begin = by_time if self._most is None else max(by_time, ends[place] - self._most)
                if begin > by_time:
                    short.append((place.topic, place.partition))
            at_offset = offsets.get((place.topic, place.partition))
            if at_offset is not None:
                begin = max(at_offset, begins[place]) if at_offset <= ends[place] else begins[place]
            positions[place] = begin
        stand(consumer, positions)
        return short


FETCH_WAIT_MS = 1_000
"""Kafka answers as soon as there is a record. The embedded broker looks at half of this time."""
SILENCE_MS = 1_400 + FETCH_WAIT_MS
AHEAD_MS = 1_000
"""How much clocks may differ."""


class TailReader(Reader):
    """For latest state that is republished: a read from the end returns nothing outdated. Reconnect after any error.

    ``whole``: read topics from their beginning. ``back_ms``: also read records published this shortly before
    ``now_ms``. Records with a later time are skipped, because their age is unknown. ``gather_ms``: as of ``Reader``.
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
        gather_ms: int = 0,
    ) -> None:
        super().__init__(bootstrap, FETCH_WAIT_MS, client_id=client_id, lost="none", gather_ms=gather_ms)
        self._topics = tuple(topics)
        self._whole = whole
        self._back_ms, self._now_ms = back_ms, now_ms
        self._recent = range(0)
        """Timestamps of earlier records that are read."""
        self._until: dict[TopicPartition, int] = {}
        """Ends of partitions with earlier records, at connecting."""

    async def read(self) -> list[Record]:
        """Wait for records; return none after two seconds or three.

        Raises LogError if Kafka is unreachable, or a topic was re-created.
        """
        return [
            record_of(one)
            for place, records in (await self._fetched(SILENCE_MS)).items()
            for one in records
            # A broker that knows no times returns all earlier records.
            if self._whole or one.offset >= self._until.get(place, 0) or one.timestamp in self._recent
        ]

    async def caught_up(self) -> bool:
        """Check whether all records are read that existed at connecting."""
        return all([await self._consumer.position(tp) >= end for tp, end in self._until.items()])

    async def _begin(self, consumer: Any) -> None:
        tps = [place for topic in self._topics for place in await partitions_of(consumer, topic)]
        starts = ends = await consumer.end_offsets(tps)
        if self._whole:
            starts = await consumer.beginning_offsets(tps)
        elif self._now_ms is not None:
            now_ms = self._now_ms()
            self._recent = range(now_ms - self._back_ms, now_ms + AHEAD_MS)
            starts = await since(consumer, ends, self._recent.start)
        stand(consumer, starts)
        self._until = {tp: end for tp, end in ends.items() if end > starts[tp]}


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
        self._reader, self._away, self._clock = reader, away, clock

    async def run(self, begun: Callable[[], None], receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """Run forever; reconnect after errors, and after a pause of this process.

        ``begun`` is called after each connection: earlier records may be outdated. ``receive`` takes records, and their
        time in monotonic seconds.
        """
        backoff, reasons = Backoff(RETRY_S, RETRY_MAX_S), Reasons()
        try:
            while True:
                try:
                    await self._reader.connect()
                    begun()
                    if self.trouble:
                        log.info("the topics are read")
                    self.trouble = ""
                    backoff.reset()
                    reasons.reset()
                    await self._read(receive)
                except LogError as exc:
                    if reasons.is_new(str(exc)):
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


STALLED_S = 5.0


async def read_topic(
    bootstrap: Cluster,
    topic: str,
    *,
    since_ms: int | None = None,
    start: Mapping[int, int] | None = None,
    follow: bool = False,
    key: str | None = None,
) -> AsyncGenerator[Record, None]:
    """Read a topic's records: in order within a partition, roughly by time across partitions.

    Close it (``contextlib.aclosing``) if you stop before its end. ``since_ms``: the first timestamp; None: from the
    oldest. Without it, ``start`` has start offsets by partition. ``follow``: continue with new records; otherwise stop
    at the current end. A ``key`` is read from its partition alone. Raises LogError if the broker is unreachable, has no
    such topic, or stopped answering.
    """
    async with _consumer(bootstrap) as consumer:
        async with _asking(bootstrap, REQUEST_MS / 1000):
            tps = await partitions_of(consumer, topic)
            if key is not None:
                tps = [tps[partition_of(key, len(tps))]]
            ends = await ends_of(consumer, tps)
            if since_ms is not None:
                starts = await since(consumer, ends, since_ms)
            else:
                given, begins = start or {}, await consumer.beginning_offsets(tps)
                starts = {tp: max(at, given.get(tp.partition, 0)) for tp, at in begins.items()}
            for tp in tps:
                consumer.seek(tp, starts[tp])
        silent_s = 0.0
        while follow or await _short_of(bootstrap, consumer, ends):
            try:
                got = await consumer.getmany(timeout_ms=1_000)
            except KafkaError as exc:
                raise LogError(f"{bootstrap}: {exc!r}") from exc
            silent_s = 0.0 if got else silent_s + 1
            if not follow and silent_s >= STALLED_S:
                raise LogError(f"{bootstrap}: nothing came for {STALLED_S:g} s although records are there")
            read = [one for tp, records in got.items() for one in records if follow or one.offset < ends[tp]]
            for one in sorted(read, key=attrgetter("timestamp")):
                if since_ms is None or one.timestamp >= since_ms:
                    for record in answers_in(record_of(one), None if key is None else key.encode()):
                        yield record


async def _short_of(bootstrap: Cluster, consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    """Check whether some position has not reached its end, within a timeout."""
    try:
        async with asyncio.timeout(STALLED_S):
            return bool([tp for tp, end in ends.items() if await consumer.position(tp) < end])
    except TimeoutError as exc:
        raise LogError(f"{bootstrap}: no position in {next(iter(ends)).topic} within {STALLED_S:g} s") from exc
