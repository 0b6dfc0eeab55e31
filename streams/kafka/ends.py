"""Fetches the end offsets of partitions, and where a group starts to read them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import trouble
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.reader import Reader
from slacktide.streams.records import Place

ENDS_S = 1.5
"""A slower answer would delay the next tick."""


class Ends(Reader):
    """Fetches offsets, and reads no records."""

    def __init__(self, bootstrap: Cluster) -> None:
        super().__init__(bootstrap, 0)

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the current end offsets of places.

        Raises:
            LogError: no answer in time.
        """
        asked = [TopicPartition(*place) for place in places]
        if not asked:
            return {}
        with trouble(f"cannot read the end of {_topics(asked)}"):
            async with asyncio.timeout(ENDS_S):
                ends = await self._consumer.end_offsets(asked)
        return {Place(*place): offset for place, offset in ends.items()}

    async def begins(self, group: str, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offsets from which a group's member reads newly assigned places.

        Raises:
            LogError: no answer in time.
        """
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
