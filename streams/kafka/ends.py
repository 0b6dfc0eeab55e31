"""Where partitions end, and where a group begins to read them: what must be read before silence is silence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import trouble
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.reader import Reader

ENDS_S = 1.5
"""An answer that takes longer would hold the next tick up."""


class Ends(Reader):
    """Asks for offsets, and reads nothing."""

    def __init__(self, bootstrap: Cluster) -> None:
        super().__init__(bootstrap, 0)

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets at which a topic's partitions end by now.

        Raises:
            LogError: nobody answers in time.

        """
        places = [TopicPartition(topic, number) for number in partitions]
        if not places:
            return {}
        with trouble(f"cannot ask where {topic} ends"):
            async with asyncio.timeout(ENDS_S):
                ends = await self._consumer.end_offsets(places)
        return {place.partition: offset for place, offset in ends.items()}

    async def begins(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offsets from which a member of the group reads a topic's partitions that were just given to it.

        Raises:
            LogError: nobody answers in time.

        """
        places = [TopicPartition(topic, number) for number in partitions]
        admin = AIOKafkaAdminClient(**client(self._bootstrap))
        with trouble(f"cannot ask how far {group} has read {topic}"):
            async with asyncio.timeout(ENDS_S):
                try:
                    await admin.start()
                    found = await admin.list_consumer_group_offsets(group, partitions=places)
                finally:
                    await admin.close()
                first = await self._consumer.beginning_offsets(places)
        committed = {place: found[place].offset for place in places if place in found}
        return {place.partition: max(first[place], committed.get(place, -1)) for place in places}
