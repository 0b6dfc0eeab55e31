"""Several topics read without a group: back from now as far as is asked, then on. What is not wanted is dropped raw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiokafka import ConsumerRecord, TopicPartition

from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.readers import READ_S, Reader
from slacktide.streams.records import Record

Wanted = Callable[[str, bytes | None], bool]
"""Of a topic's value: whether the record is to be handed on."""


class Feed(Reader):
    """Reads topics back to some time, and follows them."""

    def __init__(self, bootstrap: str, fetch_wait_ms: int, wanted: Wanted) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._wanted = wanted
        self._polled_ms: tuple[int | None, ...] = ()

    async def back(self, partitions: Mapping[str, int], since_ms: Mapping[str, int | None]) -> list[Record]:
        """What the topics hold, each partition in order.

        Args:
            partitions: how many each topic has.
            since_ms: for each of them the time from which on, by the records' clock; None: only what is yet to come.

        Raises:
            LogError: it cannot be read to its end.

        """
        consumer = self._consumer
        with trouble(f"cannot read back {', '.join(partitions)}"):
            places = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
            consumer.assign(places)
            begins = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            asked = {place: since for place in places if (since := since_ms[place.topic]) is not None}
            found = await consumer.offsets_for_times(asked) if asked else {}
            for place in places:
                at = found.get(place)
                # The embedded broker knows no times and names offset 0, or one that is long gone.
                consumer.seek(place, ends[place] if at is None or at.offset < 0 else max(at.offset, begins[place]))
            read: list[Record] = []
            async with asyncio.timeout(READ_S):
                while [place for place in places if not await self.at_end(place)]:
                    read += await self._some()
        return read

    async def more(self) -> list[Record]:
        """What has come since, waiting a moment for it.

        Raises:
            LogError: it cannot be read.

        """
        with trouble("cannot follow what nodes and operators say"):
            return await self._some()

    async def look_closer(self) -> None:
        """Whether the log is there, and still the one that was being read; to be asked every few seconds.

        A broker that lost its memory may say nothing to an offset that is not there any more.

        Raises:
            LogError: it is not.

        """
        places = sorted(self._consumer.assignment())
        for place in places:
            end = self._consumer.highwater(place)
            if end is not None and await self._consumer.position(place) > end:
                raise LogError(f"{place.topic} was re-created")
        polled_ms = tuple(self._consumer.last_poll_timestamp(place) for place in places)
        if polled_ms == self._polled_ms:
            raise LogError("no fetch was answered")
        self._polled_ms = polled_ms

    async def _some(self) -> list[Record]:
        fetched = await self._consumer.getmany(timeout_ms=int(POLL_S * 1_000))
        return [record_of(read) for batch in fetched.values() for read in batch if self._is_wanted(read)]

    def _is_wanted(self, read: ConsumerRecord[bytes, bytes]) -> bool:
        return self._wanted(read.topic, read.value)
