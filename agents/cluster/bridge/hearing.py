"""Hears what the stream says of nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.agents.kafka import Record, TailReader
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.topics import ALLOCATABLE, METRIC

log = logging.getLogger(__name__)

TOPICS = (ALLOCATABLE.name, METRIC.name)
RETRY_S, RETRY_MAX_S = 0.5, 5.0
PAUSED_S = 5.0
"""Who did not read for so long may find old figures before the new ones."""


class Hearing:
    """One reader of both topics, connected anew after any trouble.

    Args:
        bootstrap: ``host:port``, several with commas.
        writing: what is to know.
        lay_aside: takes records that cannot be used, each with the reason.
        clock: the time.

    """

    def __init__(
        self, bootstrap: str, writing: Writing, lay_aside: Callable[[Record, str], None], clock: Clock
    ) -> None:
        self.trouble = "the log was not read yet"
        """Why nothing is heard; "" where it is."""
        self._reader = TailReader(bootstrap, TOPICS, client_id="slacktide-bridge")
        self._writing = writing
        self._lay_aside = lay_aside
        self._clock = clock

    async def run(self) -> None:
        """For ever."""
        pause_s = RETRY_S
        try:
            while True:
                try:
                    await self._reader.connect()
                    self._forget()
                    if self.trouble:
                        log.info("the log is read")
                    self.trouble, pause_s = "", RETRY_S
                    await self._read()
                except LogError as exc:
                    if not self.trouble:
                        log.warning("the log is away: nothing is written", extra={"why": str(exc)})
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
        looked_s = self._clock.mono_ns() / 1e9
        while True:
            records = await self._reader.read()
            now_s = self._clock.mono_ns() / 1e9
            if now_s > looked_s + PAUSED_S:
                return
            looked_s = now_s
            for record in records:
                self._hear(record, now_s)

    def _hear(self, record: Record, now_s: float) -> None:
        node = (record.key or b"").decode(errors="replace")
        if record.value is None:  # the stream has removed what it said, with the node
            (self._writing.metrics if record.topic == METRIC.name else self._writing.allocatables).forget(node)
            return
        try:
            if record.topic == METRIC.name:
                metric = decode(record.value, NodeMetric)
                _check_key(node, metric.node, "NodeMetric")
                self._writing.metrics.hear(metric, now_s)
            else:
                allocatable = decode(record.value, NodeAllocatable)
                _check_key(node, allocatable.node, "NodeAllocatable")
                self._writing.allocatables.hear(allocatable, now_s)
        except BadMessageError as exc:
            metrics.REFUSED.labels(record.topic).inc()
            self._lay_aside(record, str(exc))

    def _forget(self) -> None:
        self._writing.metrics.clear()
        self._writing.allocatables.clear()


def _check_key(key: str, node: str, kind: str) -> None:
    if key != node:
        raise BadMessageError(kind, f"the record's key is {key!r}, its node {node!r}")
