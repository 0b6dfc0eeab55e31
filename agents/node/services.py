"""Measures the services of a node once a minute, while the policy learns how much best-effort work they bear."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slacktide.agents.clock import Clock
from slacktide.agents.node.link import Channel
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.outbox import of_minute
from slacktide.agents.node.service_times import NodeTimes, ServiceTimesReader, service_minutes, service_of
from slacktide.agents.node.slopes import learns
from slacktide.schemas.errors import LogError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.service import ServiceMinute

MINUTE_MS = 60_000
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """Where services are read, and how often."""

    reader: ServiceTimesReader
    minute_ms: int = MINUTE_MS


class Node(Protocol):
    """The node whose services are measured."""

    @property
    def facts(self) -> NodeFacts:
        """Its current facts."""

    @property
    def pods(self) -> Sequence[Pod]:
        """Its current pods, without ended ones."""


class ServiceMeter:
    """Publishes the minutes of all services as each minute ends, on a connection of their own."""

    def __init__(
        self,
        metered: Metered,
        clock: Clock,
        node: Node,
        colocation: Callable[[], Colocation],
        channel: Channel,
        metrics: AgentMetrics,
    ) -> None:
        self._reader, self._clock, self._node = metered.reader, clock, node
        self._minute_ns = metered.minute_ms * 1_000_000
        self._colocation = colocation
        self._channel, self._metrics = channel, metrics
        self._before: NodeTimes | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not learns(self._colocation()):
                self._before = None
            elif self._before is None or self._clock.mono_ns() - self._before.mono_ns >= self._minute_ns:
                await self._measure()

    async def close(self) -> None:
        """Disconnect."""
        await self._channel.close()

    async def _measure(self) -> None:
        facts, pods = self._node.facts, self._node.pods
        uids = {pod.uid for pod in pods if service_of(pod)}
        # In a thread: on a node with many pods it takes longer than a sample may wait.
        now = await asyncio.to_thread(self._reader.read, uids, self._clock.mono_ns())
        before, self._before = self._before, now
        if before is None or now is None:
            return
        if minutes := service_minutes(before, now, facts, pods, self._clock.wall_ms()):
            await self._publish(minutes)

    async def _publish(self, minutes: Sequence[ServiceMinute]) -> None:
        """Send these together, once. They are a statistic: if that fails, they are dropped."""
        try:
            refused = await self._channel.send(*map(of_minute, minutes))
        except LogError as exc:
            self._metrics.minutes_dropped.inc(len(minutes))
            await self._channel.broke(exc)
            return
        self._metrics.minutes_sent.inc(len(minutes) - refused)
        self._metrics.minutes_dropped.inc(refused)
