"""Publishes pods that a namespace quota refused, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from slacktide.schemas.codec import encode
from slacktide.schemas.errors import LogError
from slacktide.schemas.refused_pod import RefusedPod
from slacktide.schemas.topics import REFUSED_POD
from slacktide.streams.decisions.admission.namespace_quota import Exceeded
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, event

log = logging.getLogger(__name__)

SOURCE = "webhook"
KEPT_MAX = 1_000
"""Limit while Kafka is unavailable; then the oldest are dropped."""
AGAIN_S = 5.0


class Refusals:
    """Queues refused pods until Kafka has them. ``now_ms`` is UTC epoch time."""

    def __init__(self, sender: Sender, now_ms: Callable[[], int]) -> None:
        self.away = ""
        """Why Kafka does not have all of them; "": it has."""
        self._sender = sender
        self._now_ms = now_ms
        self._kept: deque[RefusedPod] = deque(maxlen=KEPT_MAX)
        self._some = asyncio.Event()

    def put(self, namespace: str, name: str, found: Exceeded) -> None:
        """Queue a refused pod."""
        refused = RefusedPod(
            namespace=namespace,
            name=name,
            resource=found.resource,
            asked=found.asked,
            used=found.used,
            bound=found.bound,
            refused_ms=self._now_ms(),
        )
        log.warning("rejected a pod by its namespace's quota", extra={"pod": f"{namespace}/{name}"})
        self._kept.append(refused)
        self._some.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            sending = list(self._kept)
            try:
                if not self._sender.connected:
                    await self._sender.connect([REFUSED_POD.name])
                await self._sender.send([_out(one) for one in sending])
            except LogError as exc:
                if not self.away:
                    log.warning("Kafka is unreachable", extra={"for": "refused pods", "why": str(exc)})
                self.away = str(exc)
                self._some.set()
                await asyncio.sleep(AGAIN_S)
                continue
            self.away = ""
            for one in sending:
                with suppress(ValueError):  # one that was dropped meanwhile
                    self._kept.remove(one)

    async def close(self) -> None:
        """Disconnect."""
        with suppress(LogError):
            await self._sender.close()


def _out(refused: RefusedPod) -> Out:
    namespace = refused.namespace
    event_id = f"refused/{namespace}/{refused.name}/{refused.refused_ms}"
    return event(
        REFUSED_POD.name, namespace, encode(refused), source=SOURCE, event_id=event_id, event_ms=refused.refused_ms
    )
