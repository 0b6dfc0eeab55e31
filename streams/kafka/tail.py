"""What some partitions hold, read once: whole, or back to some time. For who looks at the log afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.partitioner import DefaultPartitioner

from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.readers import READ_S, Reader
from slacktide.streams.records import Record

TAIL_RECORDS_MAX = 60_000
"""Per partition that is not read whole: 100 nodes for 10 min, and the embedded broker cannot look up by time."""

_partitioner = DefaultPartitioner()
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


def partition_of(key: str, partitions: int) -> int:
    """The partition in which a key's records lie, as Kafka's default partitioner has it."""
    partition: int = _partitioner(key.encode(), list(range(partitions)), [])
    return partition


class Tail(Reader):
    """Reads partitions from some time on to their end."""

    async def read(self, since_ms: Mapping[Place, int | None], wanted: Wanted = lambda _: True) -> Read:
        """What they hold.

        Args:
            since_ms: for each partition the time from which on, by the records' clock; None: it is read whole.
            wanted: whether a record is to be handed on; what is not is dropped as it comes.

        Raises:
            LogError: one of them cannot be read to its end.

        """
        consumer = self._consumer
        places = {TopicPartition(*place): since for place, since in since_ms.items()}
        topics = ", ".join(sorted({place.topic for place in places}))
        read: list[Record] = []
        with trouble(f"cannot read {topics} from {self._bootstrap}"):
            consumer.assign(list(places))
            short = await self._seek(places)
            async with asyncio.timeout(READ_S):
                while [place for place in places if not await self._at_end(place)]:
                    fetched = await consumer.getmany(timeout_ms=int(POLL_S * 1_000))
                    for place, batch in fetched.items():
                        read += _young(batch, places[place], wanted)
        return Read(records=read, short=short)

    async def _seek(self, places: Mapping[TopicPartition, int | None]) -> list[Place]:
        """Stand where each is to be read from; which of them are cut short."""
        consumer, short = self._consumer, []
        begins = await consumer.beginning_offsets(list(places))
        ends = await consumer.end_offsets(list(places))
        asked = {place: since for place, since in places.items() if since is not None}
        found = await consumer.offsets_for_times(asked) if asked else {}
        for place, since in places.items():
            begin: int = begins[place]
            if since is not None:
                at = found.get(place)
                # The embedded broker knows no times and names offset 0, or one that is long gone.
                by_time: int = ends[place] if at is None or at.offset < 0 else max(at.offset, begin)
                begin = max(by_time, ends[place] - TAIL_RECORDS_MAX)
                if begin > by_time:
                    short.append((place.topic, place.partition))
            consumer.seek(place, begin)
        return short

    async def _at_end(self, place: TopicPartition) -> bool:
        """By what fetching tells: the embedded broker's answer to the plain question may be too low."""
        end = self._consumer.highwater(place)
        position: int = await self._consumer.position(place)
        return end is not None and position >= end


def _young(batch: list[ConsumerRecord[bytes, bytes]], since_ms: int | None, wanted: Wanted) -> list[Record]:
    records = [record_of(read) for read in batch if since_ms is None or read.timestamp >= since_ms]
    return [record for record in records if wanted(record)]
