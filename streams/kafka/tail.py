"""Partitions read from some time on to their end, and then followed; without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aiokafka import ConsumerRecord, TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.schemas.unreadable import UnreadableBatch
from slacktide.streams.kafka.common import record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.kafka.times import first_since
from slacktide.streams.records import Record

READ_S = 30.0
"""What cannot be read to its end within this is not there to be read."""
END_POLL_S = 0.02
"""The client is silent of a partition without records: whether its end is reached is looked at so often."""
TAIL_RECORDS_MAX = 60_000
"""For a look back by time: 100 nodes for 10 min. The embedded broker cannot look up by time."""
WHOLE = 0
"""For a time: all that is kept."""

Place = tuple[str, int]
"""Topic and partition."""
Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What came of a look back."""

    records: list[Record]
    """Each partition in order, back to the time that was asked for."""
    short: list[Place]
    """Where there may be older ones of that time, that were too many to be read."""


def places_of(partitions: Mapping[str, int], since_ms: Mapping[str, int | None]) -> dict[Place, int | None]:
    """All partitions of these topics.

    Args:
        partitions: how many each topic has.
        since_ms: by topic the time from which on it is read.

    """
    return {(topic, number): since for topic, since in since_ms.items() for number in range(partitions[topic])}


def last_of_each_key(records: Iterable[Record]) -> list[Record]:
    """What holds now, and each batch that cannot be read."""
    return list({(record.topic, record.partition, _name(record)): record for record in records}.values())


def _name(record: Record) -> bytes | int | None:
    return record.offset if isinstance(record.value, UnreadableBatch) else record.key


class Tail(Reader):
    """Reads partitions to their end, then what comes.

    Args:
        most: of each partition that is not read whole only so many of the newest records, and of these none that is
            dated before the time asked for; None: all that stands behind the first of that time, whatever its date.

    """

    def __init__(self, bootstrap: Cluster, fetch_wait_ms: int, *, most: int | None = None) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._most = most
        self._wanted: Wanted | None = None
        self._stale = False

    async def read(
        self,
        since_ms: Mapping[Place, int | None],
        wanted: Wanted | None = None,
        offsets: Mapping[Place, int] = MappingProxyType({}),
    ) -> Read:
        """What they hold.

        Args:
            since_ms: for each partition the time from which on, by the records' timestamps; WHOLE: all that it holds;
                None: only what is yet to come.
            wanted: whether a record is to be handed on, now and by ``more``; what is not is dropped as it comes. What
                stands for an unreadable batch is handed on in any case.
            offsets: of these partitions the records from there on, whatever their time; all that they hold where it is
                beyond their end, for then it is of another log.

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

    async def more(self) -> list[Record]:
        """What has come since, waiting a moment for it.

        Raises:
            LogError: it cannot be read.

        """
        with trouble(f"cannot read from {self._bootstrap}"):
            if not self._stale:
                return await self._more()
            self._stale = False
            await self._consumer.seek_to_beginning(*self._consumer.assignment())
            return last_of_each_key(await self._more())

    def again(self) -> None:
        """Read from the beginning at the next turn: the topics may be other ones, made anew."""
        self._stale = True

    async def _more(self) -> list[Record]:
        return [record for batch in (await self._follow()).values() for record in self._taken(batch)]

    def _taken(self, batch: Iterable[ConsumerRecord[bytes, bytes]]) -> Iterable[Record]:
        records = map(record_of, batch)
        wanted = self._wanted
        if wanted is None:
            return records
        return (record for record in records if isinstance(record.value, UnreadableBatch) or wanted(record))

    async def _seek(self, places: Mapping[TopicPartition, int | None], offsets: Mapping[Place, int]) -> list[Place]:
        """Stand where each is to be read from; which of them are cut short."""
        consumer, short = self._consumer, []
        # Else the client waits 0.1 s for each topic that it does not know yet.
        await consumer._client.set_topics({place.topic for place in places})  # noqa: SLF001
        begins = await consumer.beginning_offsets(list(places))
        ends = await consumer.end_offsets(list(places))
        found = await first_since(consumer, {place: since for place, since in places.items() if since})
        positions = {}
        for place, since in places.items():
            begin: int = begins[place] if since == WHOLE else ends[place]
            if since:
                at = found.get(place)
                # The embedded broker knows no times and names offset 0, or one that is long gone.
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
