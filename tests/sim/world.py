"""Nodes, workers and a broker from one seed: a minute of trouble, then a minute left alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from zlib import crc32

import msgspec

from sim.checker import Checker
from sim.crew import Crew
from sim.governing import Governing
from sim.load import Load
from sim.log import ONE_PARTITION, PARTITIONS, Log
from sim.node import Node
from sim.policies import POLICIES
from sim.timeline import Timeline
from sim.trace import Trace
from sim.trouble import Trouble
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.interfaces import Spool
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import NodeInventory, revision_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND, INVENTORY, POLICY, SAMPLE
from slacktide.streams.records import Out
from slacktide.streams.worker import Worker

TROUBLE_MS = 60_000
QUIET_MS = 60_000
STEADY_MS = 20_000
"""The load, too, stands still at the very end."""
STILL_MS = 900
"""Less than the guard's deadline: nothing of the last tick may be waited for."""


@dataclass(slots=True)
class Parts:
    agent: Callable[..., NodeAgent] = NodeAgent
    worker: Callable[[str], Worker] = Worker
    make_spool: Callable[[], Spool] = MemorySpool
    _spools: dict[str, Spool] = field(default_factory=dict)

    def spool(self, node: str) -> Spool:
        return self._spools.setdefault(node, self.make_spool())


class World:
    trouble_ms = TROUBLE_MS
    nodes_least, nodes_most = 2, 4
    leisure = 1
    """So many times as long as usual, processes wait before they look whether there is something to do."""
    test = "tests/sim"
    """What replays it."""

    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self.parts = parts or Parts()
        self.rng = random.Random(seed)
        self.timeline = Timeline()
        self.trace = Trace(seed, self.timeline, self.test)
        self.log = Log()
        self.interval_ms = self.sampling_ms()
        self.policy = self.rng.choice(POLICIES[:-1])
        self.acting: Node | None = None
        """Whose agent is at work just now."""
        self.still = False
        """No more ticks: what is under way arrives."""
        self.nodes: list[Node] = []
        self.checker = Checker(self)
        self.trouble = Trouble(self)
        self.crew = Crew(self, [f"worker-{number}" for number in range(self.rng.randint(1, 3))])
        self.governing = Governing(self)
        self.load = Load(self)
        for number in range(self.rng.randint(self.nodes_least, self.nodes_most)):
            name = f"node-{number}"
            node = self.load.new_node(name, crc32(name.encode()) % PARTITIONS)
            self.nodes.append(node)
            self.checker.watch(node)

    def run(self) -> World:
        """Live through the trouble and the quiet minute; stops at the first wrong."""
        rng, timeline = self.rng, self.timeline
        self.publish()
        for process in self.crew.processes:
            timeline.after(rng.randint(0, 3000), process.start)
        timeline.after(rng.randint(0, 3000), self.governing.start)
        for node in self.nodes:
            timeline.after(rng.randint(0, 2000), node.boot)
        self.plan()
        self.load.plan(self.trouble_ms + QUIET_MS - STEADY_MS)
        timeline.run(self.trouble_ms)
        self.trace.note("world", "quiet")
        self.trouble.end()
        timeline.run(self.trouble_ms + QUIET_MS - STEADY_MS)
        self.checker.settled()
        timeline.run(self.trouble_ms + QUIET_MS)
        self.still = True
        timeline.run(self.trouble_ms + QUIET_MS + STILL_MS)
        self.checker.finished()
        return self

    def sampling_ms(self) -> int:
        return self.rng.choice([1000, 1000, 1000, 500])

    @property
    def interval_now_ms(self) -> int:
        return self.interval_ms

    def plan(self) -> None:
        self.trouble.plan(self.trouble_ms, self.rng.randint(4, 14))
        for node in self.nodes:
            self.timeline.at(self.rng.randint(5_000, 2 * self.trouble_ms), partial(self.trouble.leak, node))

    def publish(self) -> None:
        """Policy and inventory, as their writers repeat them every minute and on reconnect."""
        policy = msgspec.structs.replace(self.policy, published_ms=self.timeline.wall_ms)
        self.append(POLICY.name, 0, b"policy", encode(policy))
        for node in self.nodes:
            inventory = NodeInventory(node=node.name, revision=revision_of(node.facts), facts=node.facts)
            self.append(INVENTORY.name, node.partition, node.key, encode(inventory))

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Put a record into the log; its readers hear of it soon, each for itself."""
        entry = self.log.append(topic, partition, key, value, timestamp_ms=self.timeline.wall_ms)
        if topic == SAMPLE.name:
            self.crew.new_sample(entry)
        elif topic in {POLICY.name, INVENTORY.name}:
            for process in self.crew.processes:
                self.timeline.after(self.slow_ms(), process.read_topics)
            for node in self.nodes:
                node.while_alive(self.slow_ms(), node.hear_policy)
        elif topic == COMMAND.name:
            for node in self.nodes:
                if node.partition == partition:
                    node.while_alive(self.delay_ms(), node.consume_commands)

    def out(self, out: Out) -> None:
        partition = 0 if out.topic in ONE_PARTITION else out.partition
        if partition is None:
            partition = crc32(out.key or b"") % PARTITIONS
        self.append(out.topic, partition, out.key, out.value)

    def delay_ms(self) -> int:
        rng = self.rng
        return rng.randint(1, 10) if rng.random() >= self.trouble.late else rng.randint(10, 3000)

    def answer_ms(self) -> int:
        return self.rng.randint(1, 5) if self.rng.random() >= self.trouble.slow else self.rng.randint(500, 2500)

    def slow_ms(self) -> int:
        """How long a policy is under way: agent and worker may see it seconds apart."""
        return self.rng.choice([5, 5, 50, 1500, 4000])

    def policy_of(self, policy: Policy) -> None:
        self.policy = policy
        self.trace.note("operator", "policy", policy.version)
        if self.log.up:
            self.publish()
