"""Plans of gangs in Kafka: written by the replica that is asked, and read by all in one order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.placements import SOURCE
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.topics import DEAD_LETTER, GANG_PLAN
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, event

POLL_S = 0.1


class PlanOutbox(Outbox):
    """Queues plans. Each is sent at once: a kube-scheduler waits for it."""

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        super().__init__(bootstrap, (GANG_PLAN.name, DEAD_LETTER.name), now_ms, source=SOURCE, gather_s=0.0)

    def publish(self, group: str, plan: GangPlan | None) -> None:
        """Queue a plan, its amendment, its end, or why a group waits; None: the group is forgotten."""
        at_ms = self._now_ms() if plan is None else plan.decided_ms
        value, event_id = None if plan is None else encode(plan), f"gang/{group}/{at_ms}"
        self.put(event(GANG_PLAN.name, group, value, source=SOURCE, event_id=event_id, event_ms=at_ms))


class PlanReader:
    """Reads plans from the beginning.

    ``pods_known``: whether pods and PodGroups were listed; before that, places cannot be held.
    ``to_dead_letter`` receives invalid records, each with the reason. ``news`` is set after each read.
    """

    def __init__(
        self,
        cluster: Cluster,
        gangs: Gangs,
        pods_known: Callable[[], bool],
        to_dead_letter: Callable[[Record, str], None],
        clock: Clock,
    ) -> None:
        self.whole = False
        """Whether all earlier plans were read."""
        self.news = asyncio.Event()
        self._reader = TailReader(cluster, (GANG_PLAN.name,), client_id="slacktide-scheduler-gangs", whole=True)
        self.following = Following(self._reader, away="gangs get no places", clock=clock)
        self._gangs, self._pods_known = gangs, pods_known
        self._to_dead_letter, self._clock = to_dead_letter, clock

    async def run(self) -> None:
        """Run until cancelled."""
        while not self._pods_known():  # noqa: ASYNC110 - a plain value, filled by the watch
            await asyncio.sleep(POLL_S)
        await self.following.run(lambda: None, self._read)

    async def _read(self, records: list[Record], _: float) -> None:
        for record in records:
            try:
                plan = None if record.value is None else decode(record.value, GangPlan)
                self._gangs.read((record.key or b"").decode(), plan, Now.by(self._clock))
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                metrics.REFUSED.labels(record.topic).inc()
                self._to_dead_letter(record, failure("place", exc))
        if records:
            self.news.set()
        if not self.whole and await self._reader.caught_up():
            self.whole = True
