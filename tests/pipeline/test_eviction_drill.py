"""The drill: a hundred nodes short of memory at once, with real agents' cores, worker, governor and broker."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, TopicPartition

from slacktide.agents.clock import SystemClock
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import CREDIT, OUTCOME, SAMPLE
from slacktide.streams.engine.governing import GovernorSettings, govern
from slacktide.streams.governor.governor import Governor
from testbed.brokers import EmbeddedBroker
from testbed.lone_agent import lone_agent
from testbed.policies import policy_from
from testbed.stream_rig import PARTITIONS, SESSION_MS, Rig, partition_of
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30
NODES, PODS = 100, 4
NAMESPACES = ("spark", "flink")
INTERVAL_S, LASTS_S, PATIENCE_S = 5, 20, 120
BUDGET = {"clusterMax": 20, "nodeMax": 2, "namespaceMax": 15, "intervalSeconds": INTERVAL_S, "leaseSeconds": 3}
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 * GIB)
CLOCK = SystemClock()
POLICY = policy_from(
    colocation={"enable": True},
    threshold={
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "memoryEvictThresholdPercent": 50,
            "memoryEvictLowerPercent": 40,
        }
    },
    budget=BUDGET,
)


class DrillNode:
    """A node three quarters full, half of that by best-effort pods: three of four must go."""

    def __init__(self, number: int) -> None:
        self.name = f"node-{number}"
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.held_back = False
        namespace = NAMESPACES[number % 2]
        jobs = [
            Pod(uid=f"job-{each}", namespace=namespace, name=f"job-{each}", qos_label="BE", priority=5_000, grace_s=1)
            for each in range(PODS)
        ]
        pods = [Pod(uid="web", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable"), *jobs]
        for pod in pods:
            group = self.machine.add_pod(pod.uid, pod.kube_qos)
            group.mem_bytes, group.demand_milli = (GIB, 500) if pod in jobs else (2 * GIB, 500)
        self.spool = MemorySpool()
        facts = NodeFacts(name=self.name, capacity=CAPACITY, allocatable=CAPACITY)
        self.agent = lone_agent(VirtualKernel(self.machine), CLOCK, facts, spool=self.spool, policy=POLICY, pods=pods)

    async def live(self, rig: Rig) -> None:
        """A sample a second, and what came of it."""
        while True:
            self.machine.step(1_000)
            sample = self.agent.take()
            await rig.put(
                SAMPLE.name, [(self.name.encode(), encoded(sample, self.agent.pods), partition_of(self.name))]
            )
            await asyncio.sleep(0.5)
            self.agent.overdue()
            standing = self.agent.evicting
            self.held_back = self.held_back or standing.throttled or standing.frozen > 0
            pending = self.spool.pending(100)
            if pending:
                said = [(self.name.encode(), encode(outcome), partition_of(self.name)) for _, outcome in pending]
                await rig.put(OUTCOME.name, said)
                self.spool.acknowledge(pending[-1][0])
            await asyncio.sleep(0.5)


async def consume_commands(rig: Rig, agents: dict[str, NodeAgent]) -> None:
    at = 0
    while True:
        new = rig.commands[at:]
        at += len(new)
        for record in new:
            agents[record.key.decode()].answered(decode(record.value, NodeCommand))
        await asyncio.sleep(0.02)


async def consume_credit(bootstrap: str, agents: dict[str, NodeAgent]) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=50, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(CREDIT.name, 0)])
        before_ns = CLOCK.mono_ns()
        while True:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                for record in batch:
                    agents[record.key.decode()].credit(decode(record.value, EvictionCredit), before_ns)
            before_ns = CLOCK.mono_ns()
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def governed(bootstrap: str) -> AsyncIterator[None]:
    stop = asyncio.Event()
    settings = GovernorSettings(bootstrap=Cluster(bootstrap), session_timeout_ms=SESSION_MS)
    task = asyncio.create_task(govern(Governor("drill"), settings, stop, lambda: time.time_ns() // 1_000_000))
    try:
        yield
    finally:
        stop.set()
        await task


def most(made: list[NodeOutcome], key) -> int:
    """The most evictions within any interval, by what the key says of each."""
    worst = 0
    for last in made:
        within = [one for one in made if last.acted_ms - INTERVAL_S * 1_000 < one.acted_ms <= last.acted_ms]
        worst = max(worst, *Counter(key(one) for one in within).values())
    return worst


async def outcomes(rig: Rig) -> list[NodeOutcome]:
    return [decode(record.value, NodeOutcome) for record in await rig.read(OUTCOME.name)]


def evictions(said: list[NodeOutcome]) -> list[NodeOutcome]:
    return [one for one in said if one.result == "applied" and one.spent]


def held_back(said: list[NodeOutcome]) -> set[str]:
    return {one.node for one in said if one.reason == NO_CREDIT}


async def drilled(rig: Rig) -> float:
    """How long it lasted: so long, and until the budget has been used once and nearly all nodes have been held back."""
    began_s = time.monotonic()
    while True:
        await asyncio.sleep(1)
        lasted_s, said = time.monotonic() - began_s, await outcomes(rig)
        used = len(evictions(said)) >= BUDGET["clusterMax"] and len(held_back(said)) >= 0.9 * NODES
        if used and lasted_s >= LASTS_S:
            return lasted_s
        assert lasted_s < PATIENCE_S, f"{len(evictions(said))} evictions, {len(held_back(said))} nodes held back"


async def test_a_hundred_nodes_short_of_memory_evict_within_the_budget_and_hold_back_the_rest(
    embedded_broker: EmbeddedBroker,
) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    embedded_broker.apply_topics(PARTITIONS)
    nodes = [DrillNode(number) for number in range(NODES)]
    agents = {node.name: node.agent for node in nodes}
    async with Rig(embedded_broker.bootstrap) as rig:
        await rig.publish(POLICY)
        async with rig.worker(), governed(embedded_broker.bootstrap):
            works = [consume_commands(rig, agents), consume_credit(embedded_broker.bootstrap, agents)]
            tasks = [asyncio.create_task(work) for work in works]
            for node in nodes:  # a second's worth of them, spread over it
                tasks.append(asyncio.create_task(node.live(rig)))
                await asyncio.sleep(1 / NODES)
            drill = asyncio.create_task(drilled(rig))
            await asyncio.wait([drill, *tasks], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in tasks if task.done()]
            for task in (drill, *tasks):
                task.cancel()
            await asyncio.gather(drill, *tasks, return_exceptions=True)
            assert not ended, ended[0].exception()
            lasted_s = drill.result()
        said = await outcomes(rig)
        leases = await rig.read(CREDIT.name)

    made = sorted(evictions(said), key=lambda one: one.acted_ms)
    assert most(made, lambda _: "cluster") <= BUDGET["clusterMax"]
    assert most(made, lambda one: one.node) <= BUDGET["nodeMax"]
    assert most(made, lambda one: one.pod.namespace) <= BUDGET["namespaceMax"]
    wanted = held_back(said)
    assert {node.name for node in nodes if node.held_back} >= wanted, "who may not evict throttles or freezes"
    assert len(leases) <= 2 * len(made) + 10 * lasted_s, "no floods"
