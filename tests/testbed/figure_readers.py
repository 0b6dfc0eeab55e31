"""Those who read nodes' latest figures, on a real broker: the bridge's part and the scheduler's, side by side."""

import asyncio
from types import TracebackType
from typing import Self

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.bridge import writing as bridge
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.agents.cluster.scheduler import topic_reader as scheduler
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.connection import Cluster
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.records import Record


class FigureReaders:
    """Each reads all nodes; they must agree."""

    def __init__(self, bootstrap: str) -> None:
        self.laid_aside: list[tuple[Record, str]] = []
        """Records that either could not use, with the reason."""
        self._clock = SystemClock()
        self._writing, self._view = Writing(), View(PlacementArgs())
        to_dead_letter = lambda record, why: self.laid_aside.append((record, why))  # noqa: E731
        cluster = Cluster(bootstrap)
        self._parts = [
            bridge.FigureReader(cluster, self._writing, to_dead_letter, self._clock),
            scheduler.TopicReader(cluster, self._view, PlacementArgs(), to_dead_letter, self._clock),
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(part.run()) for part in self._parts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def frozen(self) -> set[str]:
        now_s = self._clock.mono_ns() / 1e9
        known = {*self._writing.metrics.latest, *self._writing.allocatables.latest}
        latest = (self._writing.metrics, self._writing.allocatables)
        written = {node for node in known if any(one.is_silent(node, now_s) for one in latest)}
        return written | {name for name, node in self._view._nodes.items() if node.view(now_s).silent == "frozen"}

    def fresh(self) -> set[str]:
        now_s = self._clock.mono_ns() / 1e9
        sold = {node for node in self._writing.allocatables.latest if self._writing.allocatables.of(node, now_s)}
        measured = {node for node in sold if self._writing.metrics.of(node, now_s)}
        return {node for node in measured if node in self._view._nodes and not self._view._nodes[node].silent(now_s)}

    def stale(self) -> set[str]:
        """Nodes that are stale for both, and not frozen."""
        now_s = self._clock.mono_ns() / 1e9
        said = {node for node in self._writing.metrics.latest if (self._writing.metrics.of(node, now_s))}
        stale = {node for node in said if self._writing.metrics.latest[node].message.stale_ms}
        return {node for node in stale if self._view._nodes[node].view(now_s).silent == "stale"}
