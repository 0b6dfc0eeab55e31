"""Forecasts of the nodes whose partitions a worker holds: those that still count, then as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from slacktide.schemas.connection import Cluster
from slacktide.schemas.forecast import FORECAST_STALE_MS
from slacktide.schemas.topics import FORECAST
from slacktide.streams.kafka import Follower
from slacktide.streams.records import Out
from slacktide.streams.worker import Worker

WAIT_MS = 200
SINCE_MS = FORECAST_STALE_MS + 60_000
"""Older ones count for nothing, and two clocks tell the time."""
AT_ONCE = 20
"""Records between which the live work has its turn: some milliseconds."""


class Foretelling:
    """The part of one session that hands forecasts to its worker.

    Args:
        worker: whose nodes.
        bootstrap: the Kafka cluster.
        write: sends what has to be reported of bad records.
        now_ms: the time, UTC epoch.

    """

    def __init__(
        self,
        worker: Worker,
        bootstrap: Cluster,
        write: Callable[[Sequence[Out]], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._worker = worker
        self._write = write
        self._now_ms = now_ms
        self.door = Follower(bootstrap, FORECAST.name, WAIT_MS)
        """To be connected before ``run``."""
        self._wanted: frozenset[int] = frozenset()
        self._ends: dict[int, int] = {}
        """Of each partition followed, the offset up to which it is read before it counts as whole."""
        self._whole: dict[int, asyncio.Event] = {}

    def hold(self, partitions: Collection[int]) -> None:
        """Follow these, and no others."""
        for partition in self._whole.keys() - partitions:
            del self._whole[partition]
        for partition in partitions - self._whole.keys():
            self._whole[partition] = asyncio.Event()
        self._wanted = frozenset(partitions)

    async def whole(self, partition: int) -> None:
        """Wait until all that stood in the partition is handed over; at once where it is not followed."""
        if partition in self._whole:
            await self._whole[partition].wait()

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            LogError: the log cannot be read, or a dead letter not be written.

        """
        while True:
            for partition in self._ends.keys() - self._wanted:
                await self.door.leave(partition)
                del self._ends[partition]
            for partition in self._wanted - self._ends.keys():
                self._ends[partition] = await self.door.take(partition, max(0, self._now_ms() - SINCE_MS))
            records = await self.door.some(AT_ONCE)
            outs = [out for record in records for out in self._worker.forecast(record)]
            if outs:
                await self._write(outs)
            await self._mark_whole()
            await asyncio.sleep(0)

    async def _mark_whole(self) -> None:
        waiting = [one for one in self._ends if one in self._whole and not self._whole[one].is_set()]
        for partition in waiting:
            if await self.door.position(partition) >= self._ends[partition]:
                self._whole[partition].set()
