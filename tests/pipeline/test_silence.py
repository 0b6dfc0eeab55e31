"""Agents that stop, pipelines that break, workers that pause: what is said of nodes meanwhile, on real brokers."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Resources, revision_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.score import NodeScore
from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import ALLOCATABLE, METRIC, SCORE, TICK
from slacktide.streams.engine import metrics
from testbed.brokers import EmbeddedBroker
from testbed.samples import BATCH, GIB, SERVICE, SUPPRESS, keyframe
from testbed.stream_rig import PARTITIONS, Rig, until
from testbed.waiting import soon

pytestmark = pytest.mark.nightly  # on Apache Kafka

NODES = [f"node-{number}" for number in range(10)]
PODS = [SERVICE, msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=700, batch_mem_bytes=GIB))]
EVERY_S = 0.5
STALE_S, LATE_S = 10.0, 6.0
"""When a node is stale, and by how much later that is told on a busy machine."""


class Agents:
    """Nodes that send a sample twice a second."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._seq = 0
        self.alive = set(NODES)
        self.wrote_s: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            self._seq += 1
            some = sorted(self.alive)
            await self._rig.send(
                [keyframe(self._seq, node, pods=PODS, pods_revision=revision_of(PODS)) for node in some]
            )
            self.wrote_s |= dict.fromkeys(some, time.monotonic())
            await asyncio.sleep(EVERY_S)


@pytest.fixture
async def agents(rig: Rig) -> AsyncIterator[Agents]:
    """Ten of them, at work."""
    agents = Agents(rig)
    working = asyncio.create_task(agents.run())
    yield agents
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


async def last(rig: Rig, node: str) -> tuple[NodeMetric, NodeAllocatable, NodeScore] | None:
    """What is said of a node by now; None: not all of it yet."""
    values = [
        [record.value for record in await rig.read(topic.name) if record.key == node.encode()]
        for topic in (METRIC, ALLOCATABLE, SCORE)
    ]
    if not all(values):
        return None
    metric, allocatable, score = (each[-1] for each in values)
    return decode(metric, NodeMetric), decode(allocatable, NodeAllocatable), decode(score, NodeScore)


async def stale_nodes(rig: Rig) -> set[str]:
    """Of whom it was ever said."""
    said = [decode(record.value, NodeMetric) for record in await rig.read(METRIC.name)]
    return {metric.node for metric in said if metric.stale_ms}


async def when(rig: Rig, node: str, *, stale: bool) -> tuple[NodeMetric, NodeAllocatable, NodeScore]:
    """Wait until it is said of the node that it is stale, or not."""
    until_s = time.monotonic() + 60
    while (said := await last(rig, node)) is None or {bool(one.stale_ms) for one in said} != {stale}:
        assert time.monotonic() < until_s, f"{node}: {said}"
        await asyncio.sleep(0.1)
    return said


async def test_an_agent_that_stops_makes_its_node_stale_and_one_that_comes_back_makes_it_whole(
    rig: Rig, agents: Agents
) -> None:
    """Within 10 s nothing new is placed there; what runs there keeps what it has asked for."""
    async with rig.worker():
        before = await when(rig, "node-3", stale=False)
        agents.alive.remove("node-3")
        metric, allocatable, score = await when(rig, "node-3", stale=True)
        took_s = time.monotonic() - agents.wrote_s["node-3"]
        agents.alive.add("node-3")
        after = await when(rig, "node-3", stale=False)

    assert (before[1].batch_cpu_milli or 0) > 700
    assert (allocatable.batch_cpu_milli, allocatable.batch_mem_bytes) == (700, GIB), "what runs there"
    assert (score.batch_left.cpu_milli, score.batch_left.mem_bytes) == (0, 0)
    assert metric.node_use == before[0].node_use
    assert metric.stale_ms <= took_s * 1_000
    assert took_s < STALE_S + LATE_S
    assert (after[1].batch_cpu_milli or 0) > 700
    assert await stale_nodes(rig) == {"node-3"}


async def test_where_six_of_ten_fall_silent_at_once_their_figures_stay_and_an_alarm_says_so(
    embedded_broker: EmbeddedBroker,
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    async with Rig(embedded_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        agents = Agents(rig)
        working = asyncio.create_task(agents.run())
        async with rig.worker() as running:
            await when(rig, NODES[-1], stale=False)
            agents.alive -= set(NODES[:6])
            await until(lambda: "6 of 10 nodes fell silent together" in running.health.not_fresh, "the alarm")
            alarm_s = time.monotonic() - agents.wrote_s[NODES[0]]
            frozen = metrics.FROZEN._value.get()
            await asyncio.sleep(max(0.0, STALE_S + 1 - alarm_s))
            stale = await stale_nodes(rig)
            agents.alive |= set(NODES)
            await until(lambda: not running.health.not_fresh, "the thaw")
        working.cancel()

    assert (stale, frozen) == (set(), 6)


async def test_a_worker_that_stood_still_says_of_nobody_that_it_is_stale(embedded_broker: EmbeddedBroker) -> None:
    """Not even where it stood longer than a node may be silent."""
    embedded_broker.apply_topics(PARTITIONS)
    async with Rig(embedded_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        agents = Agents(rig)
        working = asyncio.create_task(agents.run())
        process = rig.process("w")
        try:
            await when(rig, NODES[-1], stale=False)
            await said_at_end(rig)
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(8.0)
            stood = len(rig.answers)
            process.send_signal(signal.SIGCONT)
            await until(lambda: len(rig.answers) > stood + 12 * len(NODES), "it answers again")
            stale = await stale_nodes(rig)
            ticks = await ticks_of(rig)
        finally:
            working.cancel()
            process.kill()
            process.wait()

    assert stale == set()
    assert {tick.worker for tick in ticks} == {"w"}


async def said_at_end(rig: Rig) -> None:
    """Wait until the worker has said that it had read all that there was."""

    async def positions() -> list[Reached]:
        return [one for tick in await ticks_of(rig) for one in tick.partitions]

    await soon(
        positions, "it has read all", enough=lambda told: any(one.end and one.position >= one.end for one in told)
    )


async def ticks_of(rig: Rig) -> list[WorkerTick]:
    return [decode(record.value, WorkerTick) for record in await rig.read(TICK.name)]
