"""Follows partitions of a topic without a group; the owner adds and removes them."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.history import begin_of
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.records import Record


class Follower(Reader):
    """Follows some partitions of one topic."""

    def __init__(self, bootstrap: Cluster, topic: str, fetch_wait_ms: int) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._topic = topic

    async def take(self, partition: int, since_ms: int) -> None:
        """Add a partition, from this time on.

        Raises:
            LogError: no answer.
        """
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
        """Wait for records, ``wait_s`` at most, and return them.

        Raises:
            LogError: the topic cannot be read.
        """
        if not self._consumer.assignment():
            await asyncio.sleep(POLL_S)
            return []
        with trouble(f"cannot follow {self._topic}"):
            fetched = await self._follow(most, wait_s)
        return [record_of(read) for batch in fetched.values() for read in batch]

    async def _positions(self) -> dict[TopicPartition, int]:
        """Return all positions: the client forgets them when partitions are assigned."""
        return {place: await self._consumer.position(place) for place in self._consumer.assignment()}
