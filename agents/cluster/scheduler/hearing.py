"""Hears what the stream says of nodes: all that the log holds first, then what comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.node import Figures
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kafka import Record, TailReader
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, METRIC, SCORE

log = logging.getLogger(__name__)

KINDS: dict[str, type[Figures]] = {SCORE.name: NodeScore, METRIC.name: NodeMetric, ALLOCATABLE.name: NodeAllocatable}
RETRY_S, RETRY_MAX_S = 0.5, 5.0
PAUSED_S = 5.0
"""Who did not read for so long takes old figures for new ones: they are dated by the log again."""


class Hearing:
    """One reader of the three topics, connected anew after any trouble.

    Args:
        bootstrap: ``host:port``, several with commas.
        view: what is to know.
        lay_aside: takes records that cannot be used, each with the reason.
        clock: the time.

    """

    def __init__(self, bootstrap: str, view: View, lay_aside: Callable[[Record, str], None], clock: Clock) -> None:
        self.trouble = "the log was not read yet"
        """Why nothing is heard; "" where it is."""
        self.whole = False
        """Whether all was read once that the log held."""
        self._reader = TailReader(bootstrap, tuple(KINDS), client_id="slacktide-scheduler", whole=True)
        self._view = view
        self._lay_aside = lay_aside
        self._clock = clock

    async def run(self) -> None:
        """For ever."""
        pause_s = RETRY_S
        try:
            while True:
                try:
                    await self._reader.connect()
                    if self.trouble:
                        log.info("the log is read")
                    self.trouble, pause_s = "", RETRY_S
                    await self._read()
                except LogError as exc:
                    if not self.trouble:
                        log.warning("the log is away: nodes freeze as they are", extra={"why": str(exc)})
                    self.trouble = str(exc)
                    await asyncio.sleep(pause_s)
                    pause_s = min(RETRY_MAX_S, 2 * pause_s)
        finally:
            await self._reader.close()

    async def _read(self) -> None:
        """Until this process has paused.

        Raises:
            LogError: the log is away.

        """
        looked_s, live = self._clock.mono_ns() / 1e9, False
        while True:
            records = await self._reader.read()
            now_s, now_ms = self._clock.mono_ns() / 1e9, self._clock.wall_ms()
            if now_s > looked_s + PAUSED_S:
                return
            looked_s = now_s
            for record in records:
                # What lay in the log before is as old as the log says; of what comes, no clock has a say.
                age_s = 0.0 if live else max(0, now_ms - record.timestamp_ms) / 1000
                self._hear(record, now_s - age_s)
            if not live and await self._reader.caught_up():
                live = self.whole = True

    def _hear(self, record: Record, heard_s: float) -> None:
        node = (record.key or b"").decode(errors="replace")
        if record.value is None:  # the stream has removed what it said, with the node
            self._view.forget(node, KINDS[record.topic])
            return
        try:
            figures = _figures(record, node)
        except BadMessageError as exc:
            metrics.REFUSED.labels(record.topic).inc()
            self._lay_aside(record, str(exc))
        else:
            self._view.hear(figures, heard_s=heard_s, logged_s=record.timestamp_ms / 1000)


def _figures(record: Record, node: str) -> Figures:
    figures = decode(record.value, KINDS[record.topic])
    if figures.node != node:
        raise BadMessageError(type(figures).__name__, f"the record's key is {node!r}, its node {figures.node!r}")
    return figures
