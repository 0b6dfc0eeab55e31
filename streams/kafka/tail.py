"""Reads partitions from some time to their end, and then follows them; without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aiokafka import ConsumerRecord, TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.streams.kafka.common import POLL_S, first_since, record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.records import Record

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
    return list({(record.topic, record.partition, _name(record)): record for record in records}.values())


def _name(record: Record) -> bytes | int | None:
    return record.offset if isinstance(record.value, UnreadableBatch) else record.key


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
        """Read partitions to their end.

        ``since_ms``: by partition, the first timestamp; WHOLE: all records; None: only new ones. ``wanted`` filters
        records, also those of ``more``, except unreadable batches. ``offsets``: where to start instead; all records if
        it is beyond the end, because the topic was re-created.

        Raises:
            LogError: one of them cannot be read to its end.
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
            if not self._stale:
                return await self._more(wait_s)
            self._stale = False
            await self._consumer.seek_to_beginning(*self._consumer.assignment())
            return last_of_each_key(await self._more(wait_s))

    def again(self) -> None:
        """Read from the beginning in the next turn, because topics may have been re-created."""
        self._stale = True

    async def _more(self, wait_s: float) -> list[Record]:
        return [record for batch in (await self._follow(wait_s=wait_s)).values() for record in self._taken(batch)]

    def _taken(self, batch: Iterable[ConsumerRecord[bytes, bytes]]) -> Iterable[Record]:
        records = map(record_of, batch)
        wanted = self._wanted
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
        for place, since in places.items():
            begin: int = begins[place] if since == WHOLE else ends[place]
            if since:
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
