"""Publishes placements without delaying responses."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice

from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.dead_letters import Letters
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DEAD_LETTER, PLACEMENT
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record, dead_letter, event

log = logging.getLogger(__name__)

SOURCE = "scheduler"
TOPICS = (PLACEMENT.name, DEAD_LETTER.name)
WAITING_MAX = 10_000
AT_ONCE = 200
BEAT_S, LAST_S = 0.2, 3.0
RETRY_S, RETRY_MAX_S = 1.0, 5.0
AGAIN_MS = 60_000
"""An unchanged placement of a pending pod is published at most once in this time."""
REMEMBERED = 10_000
"""Pending pods for which that applies; others are published at each request."""


class Placements:
    """Queues placements and dead letters; above a limit the oldest are dropped."""

    def __init__(self, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        self.away = ""
        """Why placements are not in Kafka; "": they are."""
        self._sender = Sender(bootstrap, client_id="slacktide-scheduler", acks="1")
        self._now_ms = now_ms
        self._waiting: deque[Out] = deque()
        self._letters = Letters()
        self._waits: OrderedDict[str, tuple[object, int]] = OrderedDict()

    def publish(self, placement: PodPlacement) -> None:
        """Queue a placement."""
        if self._is_published(placement):
            return
        self._waiting.append(_out(placement))
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            metrics.DROPPED_PLACEMENTS.inc()

    def to_dead_letter(self, record: Record, reason: str) -> None:
        """Queue a dead letter for an invalid record."""
        self._letters.add(dead_letter(record, reader=SOURCE, reason=reason, now_ms=self._now_ms()))

    async def run(self) -> None:
        """Run until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            try:
                await self._send()
                self.away = ""
                backoff.reset()
                await asyncio.sleep(BEAT_S)
            except LogError as exc:
                if not self.away:
                    log.warning("Kafka is unreachable", extra={"for": SOURCE, "why": str(exc)})
                self.away = str(exc)
                await asyncio.sleep(backoff.next_s())

    async def close(self) -> None:
        """Send the rest at shutdown; otherwise another replica would report pods without a placement."""
        try:
            async with asyncio.timeout(LAST_S):
                await self._send()
        except (LogError, TimeoutError) as exc:
            log.warning("not all placements are published", extra={"placements": len(self._waiting), "why": str(exc)})
        finally:
            await self._sender.close()

    async def _send(self) -> None:
        while True:
            some, letters = list(islice(self._waiting, AT_ONCE)), self._letters.some()
            if not some and not letters:
                return
            if not self._sender.connected:
                await self._sender.connect(TOPICS)
            await self._sender.send([*some, *letters])
            self._letters.sent(letters)
            for one in some:
                if self._waiting and self._waiting[0] is one:  # unless it was dropped meanwhile
                    self._waiting.popleft()

    def _is_published(self, placement: PodPlacement) -> bool:
        uid = placement.pod_uid
        if placement.passed:
            self._waits.pop(uid, None)
            return False
        why = tuple((one.reason, one.count) for one in placement.refused)
        before, published_ms = self._waits.get(uid, (None, 0))
        if before == why and placement.decided_ms < published_ms + AGAIN_MS:
            return True
        self._waits.pop(uid, None)
        self._waits[uid] = why, placement.decided_ms
        while len(self._waits) > REMEMBERED:
            self._waits.popitem(last=False)
        return False


def _out(placement: PodPlacement) -> Out:
    uid = placement.pod_uid
    event_id, at_ms = f"placement/{uid}/{placement.decided_ms}", placement.decided_ms
    return event(PLACEMENT.name, uid, encode(placement), source=SOURCE, event_id=event_id, event_ms=at_ms)
