"""Heartbeats on real brokers: figures that did not change hold while their owner covers them, and no longer.

What happens takes a minute, in which hardly anything computes: the scenes are played at once, each on a broker of its
own.
"""

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.bridge import writing as bridge
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.agents.cluster.scheduler import topic_reader as scheduler
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.heartbeat import KEY, Heartbeat, heartbeat_of
from slacktide.schemas.inventory import NodeInventory, revision_of
from slacktide.schemas.metric import UNCOVERED_MS, NodeMetric
from slacktide.schemas.topics import INVENTORY, METRIC, SCORE
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.records import FIGURES, Record, Writer
from testbed.brokers import EmbeddedBroker, KafkaBroker, running
from testbed.samples import FACTS, SUPPRESS, keyframe
from testbed.stream_rig import PARTITIONS, Rig, partition_of


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


UNCOVERED_S = UNCOVERED_MS / 1_000
NODES = [f"node-{number}" for number in range(24)]
"""Six in each partition: so many that fall silent together freeze."""
SHORT_MS, LONG_MS = 5_000, 30_000
SLACK_S = 4.0


Scene: TypeAlias = Callable[[Rig], Coroutine[Any, Any, None]]


class Agents:
    """Nodes that send the same sample each second."""

    def __init__(self, rig: Rig, alive: set[str]) -> None:
        self._rig = rig
        self.alive = alive

    async def run(self) -> None:
        for seq in itertools.count(1):
            await self._rig.send([keyframe(seq, node) for node in sorted(self.alive)])
            await asyncio.sleep(1.0)


@contextlib.asynccontextmanager
async def agents(rig: Rig, alive: set[str]) -> AsyncIterator[Agents]:
    working = Agents(rig, set(alive))
    task = asyncio.create_task(working.run())
    try:
        yield working
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def soon(true: Callable[[], bool], within_s: float, what: Callable[[], object]) -> float:
    """Wait for it; how long that took."""
    begun_s = time.monotonic()
    while not true():
        assert time.monotonic() < begun_s + within_s, what()
        await asyncio.sleep(0.05)
    return time.monotonic() - begun_s


async def all_the_while(true: Callable[[], bool], for_s: float, what: Callable[[], object]) -> None:
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        assert true(), what()
        await asyncio.sleep(0.05)


async def figures_hold_between_two_publications_until_their_worker_stops_and_then_freeze(rig: Rig) -> None:
    """A reader that comes later finds the same at once."""
    nodes = {"node-1", "node-2"}
    async with agents(rig, nodes), FigureReaders(rig.bootstrap) as readers:
        async with rig.worker():
            await soon(lambda: readers.fresh() == nodes, 60, readers.fresh)
            await all_the_while(lambda: readers.fresh() == nodes, UNCOVERED_S + SLACK_S, readers.fresh)
            count = sum(one.key == b"node-1" for one in await rig.read(METRIC.name))
            async with FigureReaders(rig.bootstrap) as late:
                took_s = await soon(lambda: late.fresh() == nodes, 60, late.fresh)
                laid_aside = late.laid_aside
        assert readers.fresh() == nodes, "a restart may take a moment"
        froze_s = await soon(lambda: readers.frozen() == nodes, UNCOVERED_S + SLACK_S, readers.frozen)

    assert count <= 3, "while its window grew, and no more"
    assert took_s < LONG_MS / 2_000
    assert froze_s > UNCOVERED_S - SLACK_S
    assert [*laid_aside, *readers.laid_aside] == []


async def of_a_partition_that_stops_only_its_nodes_freeze(rig: Rig) -> None:
    stopped = set(NODES[1::PARTITIONS])
    async with (
        agents(rig, set(NODES)) as working,
        FigureReaders(rig.bootstrap) as readers,
        rig.worker() as running,
    ):
        await soon(lambda: readers.fresh() == set(NODES), 60, readers.fresh)
        working.alive -= stopped
        await soon(lambda: readers.frozen() == stopped, 2 * UNCOVERED_S, readers.frozen)
        alarm, fresh = running.health.not_fresh, readers.fresh()
        working.alive |= stopped
        await soon(lambda: readers.fresh() == set(NODES), 60, readers.fresh)

    assert fresh == set(NODES) - stopped
    assert "6 of 24 nodes fell silent together" in alarm


async def without_heartbeats_figures_hold_for_15_s_after_each_publication(rig: Rig) -> None:
    """So do those of a worker of an older version, which publishes every 5 s. At 30 s its nodes freeze in between."""
    nodes = {"node-1"}
    rig.republish_ms = SHORT_MS
    async with agents(rig, nodes), FigureReaders(rig.bootstrap) as readers, rig.worker() as running:
        await soon(lambda: readers.fresh() == nodes, 60, readers.fresh)
        await asyncio.sleep(2)
        worker: Any = running.worker
        worker.heartbeats = lambda *_, **__: []
        beaten = len(await rig.beats(METRIC.name))
        await all_the_while(lambda: readers.fresh() == nodes, UNCOVERED_S + SLACK_S, readers.fresh)
        worker.republish_ms = LONG_MS
        await soon(lambda: readers.frozen() == nodes, UNCOVERED_S + SLACK_S + 5, readers.frozen)
        after = len(await rig.beats(METRIC.name))
        del worker.heartbeats
        await soon(lambda: readers.fresh() == nodes, 60, readers.fresh)

    assert beaten > 0
    assert after <= beaten + PARTITIONS, "one was on its way"


async def when_another_owner_takes_over_the_old_ones_late_heartbeats_do_not_count(rig: Rig) -> None:
    """The old one stands still for longer than its session, and goes on. Nothing freezes on the way."""
    nodes = {"node-1", "node-2", "node-3"}
    old = rig.process("old")
    try:
        async with agents(rig, nodes), FigureReaders(rig.bootstrap) as readers:
            await soon(lambda: readers.fresh() == nodes, 60, readers.fresh)
            last = await beat_of(rig, "old")
            old.send_signal(signal.SIGSTOP)
            async with rig.worker("new"):
                next_ = await beat_of(rig, "new")
                old.send_signal(signal.SIGCONT)
                await pretend(rig, last)
                await all_the_while(lambda: not readers.frozen() - {"ghost"}, UNCOVERED_S, readers.frozen)
                ghost_frozen = "ghost" in readers.frozen()
    finally:
        old.kill()
        old.wait()

    assert next_.epoch > last.epoch
    assert ghost_frozen, "only the old owner's heartbeats name it"


async def beat_of(rig: Rig, worker: str) -> Heartbeat:
    """Its last heartbeat of partition 1; waited for until it covers node-1."""
    until_s = time.monotonic() + 60
    while True:
        read = [heartbeat_of(one.headers) for one in await rig.beats(METRIC.name) if one.partition == 1]
        found = [beat for beat in read if beat.worker == worker]
        if found and found[-1].nodes == ["node-1"]:
            return found[-1]
        assert time.monotonic() < until_s, found
        await asyncio.sleep(0.2)


async def pretend(rig: Rig, old: Heartbeat) -> None:
    """A node's figures, published once, and the old owner's late heartbeats for it."""
    [metric] = [one for one in await rig.read(METRIC.name) if one.key == b"node-1"][-1:]
    ghost = msgspec.structs.replace(decode(metric.value, NodeMetric), node="ghost")
    await rig.put(METRIC.name, [(b"ghost", encode(ghost), 1)])
    producer = AIOKafkaProducer(bootstrap_servers=rig.bootstrap)
    await producer.start()
    try:
        for second in range(round(UNCOVERED_S) + 1):
            beat = msgspec.structs.replace(old, nodes=["ghost"], ticked_ms=old.ticked_ms + 1_000 * second)
            for out in Writer("stream/old").heartbeats(beat, 1, time.time_ns() // 1_000_000):
                await producer.send_and_wait(out.topic, None, key=out.key, partition=1, headers=list(out.headers))
            await asyncio.sleep(1.0)
    finally:
        await producer.stop()


async def a_node_that_fell_silent_long_after_its_last_publication_is_called_stale_by_the_next_owner(rig: Rig) -> None:
    """Its agent and the worker end together, 25 s after its figures were published."""
    nodes = {"node-1", "node-2", "node-3"}
    facts = {node: msgspec.structs.replace(FACTS, name=node) for node in nodes}
    inventory = [NodeInventory(node=node, revision=revision_of(one), facts=one) for node, one in facts.items()]
    await rig.put(INVENTORY.name, [(one.node.encode(), encode(one), partition_of(one.node)) for one in inventory])
    async with agents(rig, nodes) as working, FigureReaders(rig.bootstrap) as readers:
        async with rig.worker("first"):
            await soon(lambda: readers.fresh() == nodes, 60, readers.fresh)
            await asyncio.sleep(25)
            working.alive.remove("node-3")
        async with rig.worker("second"):
            await soon(lambda: readers.stale() == {"node-3"}, 60, lambda: (readers.stale(), readers.frozen()))
            await soon(lambda: readers.fresh() == nodes - {"node-3"}, 60, readers.fresh)
            await all_the_while(lambda: readers.stale() == {"node-3"}, UNCOVERED_S + SLACK_S, readers.stale)


async def a_compacted_heartbeat_names_no_node(rig: Rig) -> None:
    """Its value is null: a reader that does not know heartbeats takes it for the removal of an unknown node."""
    async with agents(rig, {"node-1"}), rig.worker():
        until_s = time.monotonic() + 60
        while not (beats := await rig.beats(SCORE.name)):
            assert time.monotonic() < until_s
            await asyncio.sleep(0.2)
        others = [one for topic in FIGURES for one in await rig.read(topic)]

    assert {(one.key, one.value) for one in beats} == {(KEY.encode(), None)}
    assert {one.key for one in others} == {b"node-1"}


ON_EITHER: tuple[Scene, ...] = (
    figures_hold_between_two_publications_until_their_worker_stops_and_then_freeze,
    when_another_owner_takes_over_the_old_ones_late_heartbeats_do_not_count,
    a_compacted_heartbeat_names_no_node,
)
SCENES: tuple[Scene, ...] = (
    *ON_EITHER,
    of_a_partition_that_stops_only_its_nodes_freeze,
    without_heartbeats_figures_hold_for_15_s_after_each_publication,
    a_node_that_fell_silent_long_after_its_last_publication_is_called_stale_by_the_next_owner,
)


async def play(scene: Scene, broker: EmbeddedBroker | KafkaBroker) -> None:
    """With workers that publish again every 30 s."""
    broker.apply_topics(PARTITIONS)
    async with Rig(broker.bootstrap, republish_ms=LONG_MS) as rig:
        await rig.publish(SUPPRESS)
        await scene(rig)


async def test_on_embedded_brokers_all_at_once() -> None:
    """The first scene that fails ends the others, and is named where it failed."""
    with contextlib.ExitStack() as brokers:
        async with asyncio.TaskGroup() as played:
            for scene in SCENES:
                played.create_task(play(scene, brokers.enter_context(running(EmbeddedBroker))))


@pytest.mark.kafka
@pytest.mark.nightly
@pytest.mark.parametrize("scene", ON_EITHER, ids=lambda scene: scene.__name__)
async def test_on_apache_kafka(kafka_broker: KafkaBroker, scene: Scene) -> None:
    await play(scene, kafka_broker)
