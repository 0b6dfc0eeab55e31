"""Writes a worker's records for one session. Figures wait for others, and precede what is written after them.

A shadow's connection never delays the worker. The shadow's records wait until the real answers of a fetch are
acknowledged. They are sent in slices over a separate connection. Errors are logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Self

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import SHADOW_ALLOCATABLE, SHADOW_COMMAND
from slacktide.streams.engine import metrics
from slacktide.streams.engine.ticking import Liveness, figures_due
from slacktide.streams.kafka import Refused, Rendered, Sender, present
from slacktide.streams.kept import folded
from slacktide.streams.records import Out
from slacktide.streams.rendering import RenderedAnswers, RenderedOut, record_of
from slacktide.streams.tasks import ended, given_up
from slacktide.streams.worker import Worker
from slacktide.streams.worker.node_state import NamedSample
from slacktide.streams.worker.one_by_one import Shadow

log = logging.getLogger(__name__)

SEND_S = 3.0
"""The timeout of a produce request. A write that is not acknowledged within twice this time has failed."""
FIGURES_S = 1.0
"""Answered samples are taken into the windows, and published, so often. Each tick does so, too, half of this later."""
FIGURES_AT_ONCE = 128
"""Samples that trigger a merge. 2,000 at once would cost a hundred megabytes at 1,000 nodes, without a gain."""
UNSENT_MAX = 1_000
"""Records of figures that trigger a write: 300 nodes, 3 MB. A small batch costs as much as its records."""


class Writing:
    """The producer of a session, and the figures that wait to be written.

    ``failed``: done when the session ends by an error. ``now_ms``: wall clock, UTC epoch milliseconds.
    """

    def __init__(
        self, worker: Worker, bootstrap: Cluster, failed: asyncio.Future[None], now_ms: Callable[[], int]
    ) -> None:
        self.sender = Sender(bootstrap, client_id="slacktide-stream", timeout_s=SEND_S)
        self._worker, self._failed, self._now_ms = worker, failed, now_ms
        self._waiting: list[Out] = []

    @property
    def waits(self) -> bool:
        """Whether figures wait."""
        return bool(self._waiting)

    def wait(self, figures: Sequence[Out]) -> bool:
        """Let figures wait for others; whether there are now enough to write."""
        self._waiting += figures
        return len(self._waiting) >= UNSENT_MAX

    def keep(self, partitions: Collection[int]) -> None:
        """Drop waiting figures of all other partitions."""
        self._waiting = [out for out in self._waiting if out.partition is None or out.partition in partitions]

    async def write(self, outs: Sequence[Out]) -> None:
        """Write the waiting figures, then these records."""
        waiting, self._waiting = self._waiting, []
        await self.write_now([*waiting, *outs] if waiting else outs)

    async def write_now(self, outs: Sequence[Out]) -> None:
        """Write these records. A rejected one becomes a dead letter, and its node is answered ``skipped``.

        Raises LogError if a write failed, or the session has ended.
        """
        refusals = await self._sent(outs)
        if not refusals:
            metrics.count_written(outs)
            return
        refused = {_written(refusal.out) for refusal in refusals}
        metrics.count_written([out for out in outs if _written(out) not in refused])
        instead = [out for r in refusals for out in self._worker.refused(r.out, r.why, self._now_ms())]
        for refusal in refusals:
            log.warning("Kafka rejected a record", extra={"topic": refusal.out.topic, "why": refusal.why})
        lost = {_written(refusal.out) for refusal in await self._sent(instead)}
        metrics.count_written([out for out in instead if _written(out) not in lost])
        for topic, *_ in lost:  # the guard acts without an answer; the next record is read all the same
            log.error("Kafka also rejects the replacement of a rejected record", extra={"topic": topic})

    async def _sent(self, outs: Sequence[Out]) -> list[Refused]:
        """Write; stop waiting for acknowledgements when the session fails, or its end would wait for them all."""
        sending = asyncio.ensure_future(sent(self.sender, outs))
        try:
            await asyncio.wait((sending, self._failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            unsent = not sending.done()
            given_up(sending)
        if unsent:
            raise LogError("the session has ended")
        return sending.result()


class Figures:
    """Takes answered samples into the windows, and publishes what is due.

    ``shadow`` decides beside the worker, after it. ``now_ms``: wall clock, UTC epoch milliseconds.
    """

    def __init__(
        self, worker: Worker, writing: Writing, liveness: Liveness, shadow: ShadowDoor | None, now_ms: Callable[[], int]
    ) -> None:
        self._worker, self._writing, self._liveness, self._shadow = worker, writing, liveness, shadow
        self._now_ms = now_ms

    async def publish_due(self) -> None:
        """Publish what waits: a wave's fixed cost is spent twice a second, ticks included."""
        if self._worker.unpublished or self._writing.waits:
            await self.publish()
        elif self._shadow is not None:
            self._shadow.go_on()

    async def aggregate(self) -> None:
        """Take answered samples into the windows once they are many, and write their figures once these are many."""
        if self._worker.unpublished >= FIGURES_AT_ONCE and self._writing.wait(
            figures_due(self._worker, self._now_ms())
        ):
            await self.publish()

    async def publish(self) -> None:
        """Publish now what is due. Raises LogError if a write failed, or the process stood still."""
        self._liveness.check_awake()
        await self._writing.write(figures_due(self._worker, self._now_ms()))
        if self._shadow is not None:
            self._shadow.go_on()


def _written(out: Out) -> tuple[str, bytes | None, bytes | None]:
    return out.topic, out.key, out.value


async def sent(sender: Sender, outs: Sequence[Out]) -> list[Refused]:
    """Write records, ordered within each partition; return those that Kafka rejected.

    The few records without a partition go last. Raises LogError if a write failed.
    """
    if isinstance(outs, RenderedAnswers):
        batches, placeless = [Rendered(*place, its) for place, its in outs.by_place.items()], outs.placeless
    elif any(isinstance(out, RenderedOut) for out in outs):
        by_place: dict[tuple[str, int], list[bytes]] = {}
        for out in outs:
            if out.partition is not None:
                by_place.setdefault((out.topic, out.partition), []).append(record_of(out))
        batches = [Rendered(*place, its) for place, its in by_place.items()]
        placeless = [out for out in outs if out.partition is None]
    else:  # the client encodes headers faster
        batches, placeless = [], folded(outs)
    refused: list[Refused] = []
    if batches:
        refused += [one for one in await sender.send_rendered(batches) if one is not None]
    if placeless:
        refused += [one for one in await sender.send_each(placeless) if isinstance(one, Refused)]
    return refused


LAG_MS = 3_000
"""Samples that wait in Kafka for longer than this have no shadow answer: the worker itself lags."""
WAITING_MAX = 2_000
SLICE = 50
"""Samples between two yields to the worker: about 2 ms."""
RETRY_S, RETRY_MAX_S = 1.0, 10.0


class ShadowDoor:
    """One connection of a shadow, beside its worker's session."""

    def __init__(self, shadow: Shadow, bootstrap: Cluster, now_ms: Callable[[], int]) -> None:
        self._shadow, self._bootstrap, self._now_ms = shadow, bootstrap, now_ms
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
            await ended(self._speaking)
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
                results = await sender.send_each(folded([*outs, *unasked.values()]))
            except BaseException:
                metrics.SHADOW_SKIPPED.inc(len(slice_))
                self._unasked = unasked | self._unasked
                raise
            refused = [result for result in results if isinstance(result, Refused)]
            for one in refused:
                log.warning("Kafka refused a shadow's record", extra={"why": one.why})
            lost = {_written(one.out) for one in refused}
            for out in outs:
                if out.answer and _written(out) not in lost:
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
