"""A topic's partitions followed without a group: those that whoever asks has at the time."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.history import begin_of
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.records import Record


class Follower(Reader):
    """Reads some partitions of one topic from some time on."""

    def __init__(self, bootstrap: Cluster, topic: str, fetch_wait_ms: int) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._topic = topic

    async def take(self, partition: int, since_ms: int) -> None:
        """Follow this partition, too, from that time on.

        Raises:
            LogError: nobody answers.

        """
        place = TopicPartition(self._topic, partition)
        with trouble(f"cannot follow {self._topic}/{partition}"):
            [end] = (await self._consumer.end_offsets([place])).values()
            begin = await begin_of(self._consumer, place, end, since_ms)
            stand(self._consumer, {**await self._positions(), place: begin})

    async def leave(self, partition: int) -> None:
        """Follow this one no longer."""
        with trouble(f"cannot follow {self._topic}"):
            positions = await self._positions()
            positions.pop(TopicPartition(self._topic, partition), None)
            stand(self._consumer, positions)

    async def some(self, most: int) -> list[Record]:
        """What has come, waiting a moment for it.

        Raises:
            LogError: it cannot be read.

        """
        if not self._consumer.assignment():
            await asyncio.sleep(POLL_S)
            return []
        with trouble(f"cannot follow {self._topic}"):
            fetched = await self._follow(most)
        return [record_of(read) for batch in fetched.values() for read in batch]

    async def _positions(self) -> dict[TopicPartition, int]:
        """The client forgets where it stood in all partitions whenever it is given other ones."""
        return {place: await self._consumer.position(place) for place in self._consumer.assignment()}
