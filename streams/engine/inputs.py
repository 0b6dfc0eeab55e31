"""Follows what all workers read beside samples: the policy, the inventory, and the forecasts of nodes."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from slacktide.schemas.connection import Cluster
from slacktide.schemas.forecast import FORECAST_STALE_MS
from slacktide.schemas.topics import FORECAST, INVENTORY, POLICY
from slacktide.streams.engine import metrics
from slacktide.streams.engine.ticking import Ticking
from slacktide.streams.kafka import WHOLE, Follower, History, Tail, last_of_each_key, places_of
from slacktide.streams.records import Out, Place, Record
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 200
"""Policy and inventory rarely change: the broker may hold this fetch longer than one for samples."""
POLL_S = 1.0


class OperatorRecords:
    """Reads policy and inventory whole, then follows them. ``write`` sends dead letters and tombstones."""

    def __init__(
        self, worker: Worker, ticking: Ticking, bootstrap: Cluster, write: Callable[[Sequence[Out]], Awaitable[None]]
    ) -> None:
        self._worker, self._ticking, self._write = worker, ticking, write
        self.tail = Tail(bootstrap, FOLLOW_WAIT_MS)

    async def read(self, partitions: Mapping[str, int]) -> None:
        """Read both topics whole; ``partitions``: how many each topic has. Raises LogError if Kafka is unavailable."""
        read = (await self.tail.read(places_of(partitions, {POLICY.name: WHOLE, INVENTORY.name: WHOLE}))).records
        await self._take(last_of_each_key(read), older=[one for one in read if one.topic == POLICY.name])

    async def run(self) -> None:
        """Follow both topics, until cancelled."""
        while True:
            await self._take(await self.tail.more(POLL_S))

    async def _take(self, records: Sequence[Record], older: Sequence[Record] = ()) -> None:
        """Apply records in order.

        One of the policies in ``older``, which were published before, may be the last valid one of the highest epoch.
        Their dead letters were written when they came.
        """
        outs: list[Out] = []
        before, refused = self._worker.in_force.version, self._worker.policies.refused
        for record in older:
            self._worker.policy(record)
        for record in records:
            if record.topic == POLICY.name:
                outs += self._worker.policy(record)
            else:
                outs += self._worker.inventory(record)
                self._ticking.inventory(record)
        if self._worker.in_force.version != before:
            log.info("another policy is in force", extra={"version": self._worker.in_force.version})
        now_refused = self._worker.policies.refused
        metrics.POLICY_REFUSED.set(bool(now_refused))
        if now_refused and now_refused != refused:
            log.error("a policy is rejected", extra={"why": now_refused})
        if outs:
            await self._write(outs)


SINCE_MS = FORECAST_STALE_MS + 60_000
"""Older forecasts are stale by either clock."""
AT_ONCE = 20
"""Records between two yields to the event loop: a few milliseconds."""


class Forecasting:
    """Passes forecasts to the worker of one session. ``history`` looks offsets up; ``write`` sends dead letters."""

    def __init__(
        self,
        worker: Worker,
        bootstrap: Cluster,
        history: History,
        write: Callable[[Sequence[Out]], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._worker, self._write, self._now_ms = worker, write, now_ms
        self._history = history
        self.door = Follower(bootstrap, FORECAST.name, FOLLOW_WAIT_MS)
        """Must be connected before ``run``."""
        self._wanted: frozenset[int] = frozenset()
        self._followed: set[int] = set()

    def hold(self, partitions: Collection[int]) -> None:
        """Follow exactly these partitions."""
        self._wanted = frozenset(partitions)

    async def run(self) -> None:
        """Read until cancelled. Raises LogError if Kafka is unavailable, or a dead letter was not written."""
        while True:
            for partition in self._followed - self._wanted:
                await self.door.leave(partition)
                self._followed.discard(partition)
            for partition in self._wanted - self._followed:
                since_ms = max(0, self._now_ms() - SINCE_MS)
                await self.door.take(partition, await self._history.begin(Place(FORECAST.name, partition), since_ms))
                self._followed.add(partition)
            if outs := self._worker.forecasts(await self.door.some(AT_ONCE, POLL_S)):
                await self._write(outs)
