"""The connection of a shadow to Kafka, which never delays the worker.

The shadow's records wait until the real answers of a fetch are acknowledged. They are sent in slices over a separate
connection. Errors are logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Self

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import SHADOW_ALLOCATABLE, SHADOW_COMMAND
from slacktide.streams.engine import metrics
from slacktide.streams.kafka import Refused, Sender, present
from slacktide.streams.records import Out
from slacktide.streams.worker.answering import Shadow
from slacktide.streams.worker.node_state import NamedSample

log = logging.getLogger(__name__)

LAG_MS = 3_000
"""Samples that wait in Kafka for longer than this have no shadow answer: the worker itself lags."""
WAITING_MAX = 2_000
SLICE = 50
"""Samples between two yields to the worker: about 2 ms."""
RETRY_S, RETRY_MAX_S = 1.0, 10.0
SEND_S = 3.0


class ShadowDoor:
    """One connection of a shadow, beside its worker's session."""

    def __init__(self, shadow: Shadow, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        self._shadow = shadow
        self._bootstrap = bootstrap
        self._now_ms = now_ms
        self._waiting: list[NamedSample] = []
        self._unasked: dict[tuple[str, bytes | None], Out] = {}
        """By topic and key: only the last record of a silent node is kept."""
        self._wake = asyncio.Event()
        self._speaking: asyncio.Task[None] | None = None
        self._logged = ""

    async def __aenter__(self) -> Self:
        """Begin; connect later, so that nothing waits for it."""
        metrics.SHADOW_SKIPPED.inc(len(self._shadow.take()))
        self._speaking = asyncio.create_task(self._speak())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, and drop unpublished records."""
        if self._speaking is not None:
            self._speaking.cancel()
            await asyncio.gather(self._speaking, return_exceptions=True)
        metrics.SHADOW_SKIPPED.inc(len(self._waiting))
        self._waiting = []

    def go_on(self) -> None:
        """Let the shadow answer a fetch whose real answers are acknowledged."""
        since_ms = self._now_ms() - LAG_MS
        seen = self._shadow.take()
        in_time = [one for one in seen if one.record.timestamp_ms >= since_ms]
        kept = in_time[: max(0, WAITING_MAX - len(self._waiting))]
        metrics.SHADOW_SKIPPED.inc(len(seen) - len(kept))
        self._waiting += kept
        self._unasked |= {(out.topic, out.key): out for out in self._shadow.unasked()}
        self._wake.set()

    async def _speak(self) -> None:
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            try:
                await present(self._bootstrap, (SHADOW_COMMAND.name, SHADOW_ALLOCATABLE.name))
                async with Sender(self._bootstrap, client_id="slacktide-stream-shadow", timeout_s=SEND_S) as sender:
                    backoff.reset()
                    while True:
                        await self._wake.wait()
                        self._wake.clear()
                        await self._send_all(sender)
            except Exception as exc:  # noqa: BLE001 - the real answers go on in any case
                self._fail(exc)
                metrics.SHADOW_SKIPPED.inc(len(self._waiting))
                self._waiting = []
            await asyncio.sleep(backoff.next_s())

    async def _send_all(self, sender: Sender) -> None:
        while self._waiting or self._unasked:
            slice_, self._waiting = self._waiting[:SLICE], self._waiting[SLICE:]
            unasked, self._unasked = self._unasked, {}
            try:
                outs = self._decided(slice_)
                results = await sender.send_each([*outs, *unasked.values()])
            except BaseException:
                metrics.SHADOW_SKIPPED.inc(len(slice_))
                self._unasked = unasked | self._unasked
                raise
            refused = [result for result in results if isinstance(result, Refused)]
            for one in refused:
                log.warning("Kafka refused a shadow's record", extra={"why": one.why})
            lost = [one.out for one in refused]
            for out in outs:
                if out.answer and out not in lost:
                    metrics.SHADOW_ANSWERS.labels(out.answer).inc()
            self._logged = ""

    def _decided(self, seen: Sequence[NamedSample]) -> list[Out]:
        outs: list[Out] = []
        now_ms = self._now_ms()
        for one in seen:
            try:
                outs += list(self._shadow.decisions(one, now_ms))
            except Exception as exc:  # noqa: BLE001 - one sample's invalid figures
                metrics.SHADOW_SKIPPED.inc()
                self._fail(exc)
        return outs

    def _fail(self, exc: Exception) -> None:
        why = str(exc) or type(exc).__name__
        if why != self._logged:  # once per reason
            self._logged = why
            log.warning("the shadow cannot answer: %s; the real answers go on", why)
