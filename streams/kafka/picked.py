"""Reads single records by their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.records import Place, Record

READ_S = 2.0
"""Records that take longer are omitted."""
FETCH_WAIT_MS = 100
PARTITION_BYTES_MAX = 64 << 10
"""Per fetch, of which one record is needed."""


class Picked(Reader):
    """Reads records with known offsets, one call at a time."""

    def __init__(self, bootstrap: Cluster, *, client_id: str) -> None:
        super().__init__(bootstrap, FETCH_WAIT_MS, client_id=client_id, partition_bytes_max=PARTITION_BYTES_MAX)

    async def read(self, offsets: Mapping[Place, int]) -> list[Record]:
        """Return the records at these offsets; omit those that no longer exist.

        Raises:
            LogError: Kafka is unreachable.
        """
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
