"""Follows the forecasts of nodes in held partitions. A takeover reads older ones itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from slacktide.schemas.connection import Cluster
from slacktide.schemas.forecast import FORECAST_STALE_MS
from slacktide.schemas.topics import FORECAST
from slacktide.streams.kafka import Follower
from slacktide.streams.records import Out
from slacktide.streams.worker import Worker

WAIT_MS = 200
POLL_S = 1.0
"""How soon another partition is followed: a takeover reads older forecasts itself."""
SINCE_MS = FORECAST_STALE_MS + 60_000
"""Older forecasts are stale by either clock."""
AT_ONCE = 20
"""Records between two yields to the event loop: a few milliseconds."""


class Forecasting:
    """Passes forecasts to the worker of one session. ``write`` sends dead letters."""

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
        """Must be connected before ``run``."""
        self._wanted: frozenset[int] = frozenset()
        self._followed: set[int] = set()

    def hold(self, partitions: Collection[int]) -> None:
        """Follow exactly these partitions."""
        self._wanted = frozenset(partitions)

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            LogError: Kafka is unavailable, or a dead letter was not written.
        """
        while True:
            for partition in self._followed - self._wanted:
                await self.door.leave(partition)
                self._followed.discard(partition)
            for partition in self._wanted - self._followed:
                await self.door.take(partition, max(0, self._now_ms() - SINCE_MS))
                self._followed.add(partition)
            if outs := self._worker.forecasts(await self.door.some(AT_ONCE, POLL_S)):
                await self._write(outs)
