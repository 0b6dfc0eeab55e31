"""Decisions about gangs and reservations in Kafka: written by the replica that is asked, read by all in one order."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.placements import SOURCE
from slacktide.agents.publisher import Outbox
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.message import Message
from slacktide.schemas.topics import DEAD_LETTER, GANG_PLAN, RESERVATION_OPEN, Topic
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, event

POLL_S = 0.1
M = TypeVar("M", bound=Message)


class DecisionOutbox(Outbox):
    """Queues decisions about groups of pods. Each is sent at once: a kube-scheduler waits for it."""

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        topics = GANG_PLAN.name, RESERVATION_OPEN.name, DEAD_LETTER.name
        super().__init__(bootstrap, topics, now_ms, source=SOURCE, gather_s=0.0)

    def publish(self, topic: Topic, key: str, decision: Message | None) -> None:
        """Queue a decision; None: its key is forgotten."""
        at_ms = self._now_ms()
        value, event_id = None if decision is None else encode(decision), f"{topic.name}/{key}/{at_ms}"
        self.put(event(topic.name, key, value, source=SOURCE, event_id=event_id, event_ms=at_ms))


class DecisionReader(Generic[M]):
    """Reads decisions of one topic from its beginning, in an order that all replicas share.

    ``take`` applies one; None: its key is forgotten. ``pods_known``: whether pods were listed; before that, places
    cannot be held. ``to_dead_letter`` receives invalid records, each with the reason. ``news`` is set after each read.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        kind: type[M],
        take: Callable[[str, M | None, Now], None],
        pods_known: Callable[[], bool],
        to_dead_letter: Callable[[Record, str], None],
        news: asyncio.Event,
        clock: Clock,
    ) -> None:
        self.whole = False
        """Whether all earlier records were read."""
        self._reader = TailReader(cluster, (topic.name,), client_id="slacktide-scheduler-decisions", whole=True)
        self.following = Following(self._reader, away="gangs and reservations get no places", clock=clock)
        self._kind, self._take, self._pods_known = kind, take, pods_known
        self._to_dead_letter, self._news, self._clock = to_dead_letter, news, clock

    async def run(self) -> None:
        """Run until cancelled."""
        while not self._pods_known():  # noqa: ASYNC110 - a plain value, filled by the watch
            await asyncio.sleep(POLL_S)
        await self.following.run(lambda: None, self._read)

    async def _read(self, records: list[Record], _: float) -> None:
        for record in records:
            try:
                found = None if record.value is None else decode(record.value, self._kind)
                self._take((record.key or b"").decode(), found, Now.by(self._clock))
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                metrics.REFUSED.labels(record.topic).inc()
                self._to_dead_letter(record, failure("place", exc))
        if records:
            self._news.set()
        if not self.whole and await self._reader.caught_up():
            self.whole = True
