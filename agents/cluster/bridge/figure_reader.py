"""Reads the figures of nodes that stream workers publish."""

from __future__ import annotations

import logging
from collections.abc import Callable

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.topics import ALLOCATABLE, METRIC
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, check_node

log = logging.getLogger(__name__)

TOPICS = (ALLOCATABLE.name, METRIC.name)
PUBLISHED_AGAIN_MS = 36_000
"""Valid figures were republished within this time: workers do so every 30 s at least."""


class FigureReader:
    """Reads both topics; reconnects after errors. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self, bootstrap: Cluster, writing: Writing, to_dead_letter: Callable[[Record, str], None], clock: Clock
    ) -> None:
        self._reader = TailReader(
            bootstrap, TOPICS, client_id="slacktide-bridge", back_ms=PUBLISHED_AGAIN_MS, now_ms=clock.wall_ms
        )
        self.following = Following(self._reader, away="nothing is written", clock=clock)
        self._live = False
        """Whether the backlog at connecting was read."""
        self._coverage = Coverage()
        self._writing, self._to_dead_letter, self._clock = writing, to_dead_letter, clock

    async def run(self) -> None:
        """Run until cancelled."""
        await self.following.run(self._forget, self._receive_all)

    async def _receive_all(self, records: list[Record], now_s: float) -> None:
        now_ms = self._clock.wall_ms()
        for record in records:
            # The age of backlog records needs both clocks; a new record counts as fresh.
            age_s = 0.0 if self._live else max(0, now_ms - record.timestamp_ms) / 1000
            self._receive(record, now_s - age_s)
        self._live = self._live or await self._reader.caught_up()

    def _receive(self, record: Record, now_s: float) -> None:
        if is_heartbeat(record.key):
            self._cover(record, now_s)
            return
        node = (record.key or b"").decode(errors="replace")
        if record.value is None:  # the worker removed the node's figures
            (self._writing.metrics if record.topic == METRIC.name else self._writing.allocatables).forget(node)
            return
        try:
            if record.topic == METRIC.name:
                metric = decode(record.value, NodeMetric)
                check_node(node, metric.node, "NodeMetric")
                self._writing.metrics.receive(metric, now_s)
            else:
                allocatable = decode(record.value, NodeAllocatable)
                check_node(node, allocatable.node, "NodeAllocatable")
                self._writing.allocatables.receive(allocatable, now_s)
                if why := self._writing.overstated(allocatable):
                    log.warning("figures above the Node's capacity are reduced to it", extra={"node": node, "why": why})
                    self._to_dead_letter(record, f"{why}; the capacity is written instead")
        except Exception as exc:  # noqa: BLE001 - one record stops nothing
            self._to_dead_letter(record, failure("publish to Kubernetes", exc))

    def _cover(self, record: Record, now_s: float) -> None:
        try:
            nodes = self._coverage.receive(record, now_s)
        except BadMessageError as exc:
            self._to_dead_letter(record, str(exc))
            return
        (self._writing.metrics if record.topic == METRIC.name else self._writing.allocatables).cover(nodes, now_s)

    def _forget(self) -> None:
        self._live = False
        self._coverage.clear()
        self._writing.metrics.clear()
        self._writing.allocatables.clear()
