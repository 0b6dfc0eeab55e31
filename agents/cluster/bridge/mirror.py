"""Writes due changes to the API server, in rounds of at most one per second."""

from __future__ import annotations

import asyncio
import logging

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import metrics, node_metric
from slacktide.agents.cluster.bridge.sources import Node
from slacktide.agents.cluster.bridge.writing import Write, Writing
from slacktide.agents.kubernetes import NODE_METRICS, NODES, ApiAwayError, ApiError, ApiRefusedError, ApiServer
from slacktide.schemas.backoff import Backoff

log = logging.getLogger(__name__)

ROUND_S = 1.0
AT_ONCE = 8
PAUSE_MAX_S = 30.0
NOT_FOUND, CONFLICT, TOO_MANY = 404, 409, 429


class Mirror:
    """The only writer of Nodes and NodeMetrics."""

    def __init__(self, writing: Writing, clock: Clock) -> None:
        self.trouble = ""
        """Why the last write failed; "": it succeeded."""
        self._writing = writing
        self._clock = clock
        self._few = asyncio.Semaphore(AT_ONCE)
        self._backoff = Backoff(ROUND_S, PAUSE_MAX_S)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled. After errors or a Retry-After it waits from one second up to 30 s."""
        pause_s = 0.0
        while True:
            begun_s = self._clock.mono_ns() / 1e9
            due = self._writing.due(begun_s)
            waits = await asyncio.gather(*(self._write(api, write) for write in due))
            if due:
                pause_s = self._pause_s(max(waits))
            rest_s = begun_s + ROUND_S - self._clock.mono_ns() / 1e9
            await asyncio.sleep(max(0.0, rest_s, pause_s))

    def _pause_s(self, asked_s: float) -> float:
        """Return how long to wait before the next request."""
        if not asked_s:
            self._backoff.reset()
            return 0.0
        return min(PAUSE_MAX_S, asked_s + self._backoff.next_s())

    async def _write(self, api: ApiServer, write: Write) -> float:
        """Write once; returns how long to wait before the next request."""
        async with self._few:
            try:
                await self._status(api, write) if write.kind == "status" else await self._metric(api, write)
            except ApiError as exc:
                return self._failed(write, exc)
        self._writing.wrote(write, self._clock.mono_ns() / 1e9, done=True)
        metrics.WRITES.labels(write.kind, "done").inc()
        self.trouble = ""
        return 0.0

    async def _status(self, api: ApiServer, write: Write) -> None:
        node = await api.patch(NODES, write.node, write.body, Node, sub="status")
        shows = node.shown()
        self._writing.shows(write.node, shows)
        metrics.sells(write.node, shows.allocatable)
        log.debug("batch and mid resources written", extra={"node": write.node, "why": write.reason})

    async def _metric(self, api: ApiServer, write: Write) -> None:
        try:
            await api.patch(NODE_METRICS, write.node, write.body, dict, sub="status")
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
        else:
            return
        try:
            await api.create(NODE_METRICS, node_metric.created(write.node, write.uid), dict)
        except ApiRefusedError as exc:
            if exc.status != CONFLICT:
                raise
        await api.patch(NODE_METRICS, write.node, write.body, dict, sub="status")

    def _failed(self, write: Write, exc: ApiError) -> float:
        self._writing.wrote(write, self._clock.mono_ns() / 1e9, done=False)
        away = isinstance(exc, ApiAwayError)
        metrics.WRITES.labels(write.kind, "away" if away else "refused").inc()
        if isinstance(exc, ApiRefusedError) and exc.status == NOT_FOUND and write.kind == "status":
            return 0.0  # the node was deleted; the watch will report it
        if not self.trouble:
            log.warning("a write failed", extra={"node": write.node, "what": write.kind, "why": str(exc)})
        self.trouble = str(exc)
        if isinstance(exc, ApiRefusedError):
            return max(ROUND_S, exc.retry_after_s) if exc.status == TOO_MANY or exc.status >= 500 else 0.0
        return ROUND_S
