"""Measures the services of a node once a minute, while the policy learns how much best-effort work they bear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slacktide.agents.clock import Clock
from slacktide.agents.node.service_times import NodeTimes, ServiceTimesReader, service_minutes, service_of
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
    """Offers the minutes of all services as each minute ends."""

    def __init__(
        self,
        metered: Metered,
        clock: Clock,
        node: Node,
        colocation: Callable[[], Colocation],
        offer: Callable[[Sequence[ServiceMinute]], None],
    ) -> None:
        self._reader, self._clock, self._node = metered.reader, clock, node
        self._minute_ns = metered.minute_ms * 1_000_000
        self._colocation, self._offer = colocation, offer
        self._before: NodeTimes | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._colocation().learned_caps == "off":
                self._before = None
            elif self._before is None or self._clock.mono_ns() - self._before.mono_ns >= self._minute_ns:
                await self._measure()

    async def _measure(self) -> None:
        facts, pods = self._node.facts, self._node.pods
        uids = {pod.uid for pod in pods if service_of(pod)}
        # In a thread: on a node with many pods it takes longer than a sample may wait.
        now = await asyncio.to_thread(self._reader.read, uids, self._clock.mono_ns())
        before, self._before = self._before, now
        if before is None or now is None:
            return
        if minutes := service_minutes(before, now, facts, pods, self._clock.wall_ms()):
            self._offer(minutes)
