"""Many agents' own connections to Kafka, in one process: ``python -m bench.links --help``.

Each agent has the product's ``Link``: its producers, its reader, its retries. Samples are those of a fleet's node. An
answer that sets something leads to an outcome, as on a node. There is no kernel, no guard and no spool on disk.
"""

import argparse
import asyncio
import dataclasses
import sys

import msgspec
import uvloop
from aiokafka.conn import AIOKafkaConnection

from bench.fleet import FleetNode
from bench.log import USUAL_POLICY
from slacktide.agents.clock import Clock, SystemClock
from slacktide.agents.node.link import Link
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.codec import decode
from slacktide.schemas.command import Hold, NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.records import Record

INTERVAL_S = 1.0
IN_TIME_MS = 1_000
"""The guard's deadline: a node with a later answer decides by itself."""
AWAITED_MAX = 60
"""Samples of one agent that may still be answered."""
FETCH_WAIT_MS: int = next(one.default for one in dataclasses.fields(LoopSettings) if one.name == "fetch_wait_ms")


class Counts(msgspec.Struct, kw_only=True):
    """All agents of one process since its start; each second a line of its output."""

    at_s: float = 0.0
    """Of the monotonic clock."""
    answering: int = 0
    """Agents that have had an answer."""
    taken: int = 0
    """Samples."""
    answered: int = 0
    in_time: int = 0
    """Answers within the guard's deadline."""
    outcomes: int = 0
    requests: dict[str, int] = {}
    """To all brokers, by kind."""


class Agent:
    """One agent as Kafka sees it."""

    def __init__(self, bootstrap: str, number: int, counts: Counts, clock: Clock) -> None:
        self._node = FleetNode(number, USUAL_POLICY)
        self._counts = counts
        self._clock = clock
        self._awaited: dict[int, int] = {}
        """When samples were taken that are not answered yet, ns of the monotonic clock."""
        self._answering, self._seq = False, -1
        self._spool = MemorySpool()
        self._link = Link(
            bootstrap=Cluster(bootstrap),
            node=self._node.name,
            fetch_wait_ms=FETCH_WAIT_MS,
            spool=self._spool,
            listener=self,
            metrics=AgentMetrics(self._node.name),
            now_ms=clock.wall_ms,
            sign=lambda out: out,
            turned=lambda: None,
        )

    async def run(self, ahead_s: float) -> None:
        """A sample a second, the first after ``ahead_s``, until cancelled.

        Raises:
            LinkError: one of its connections is kept no more.

        """
        try:
            async with asyncio.TaskGroup() as works:
                works.create_task(self._link.run())
                works.create_task(self._tick(ahead_s))
        finally:
            await self._link.close()

    async def _tick(self, ahead_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + ahead_s
        while True:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_s += INTERVAL_S
            sample = self._node.sample(self._clock.wall_ms())
            self._counts.taken += 1
            self._awaited[sample.seq], self._seq = self._clock.mono_ns(), sample.seq
            self._awaited.pop(sample.seq - AWAITED_MAX, None)
            self._link.offer(sample, self._node.facts, self._node.pods)

    def awaits_answer(self) -> bool:
        """Return whether the newest sample is not answered yet."""
        return self._seq in self._awaited

    def commands(self, records: list[Record]) -> None:
        """Answers came."""
        for record in records:
            if record.value is not None:
                self._answered(decode(record.value, NodeCommand))

    def policies(self, records: list[Record]) -> None:
        """It keeps the one that it has."""

    def credits(self, records: list[Record], age_s: float) -> None:
        """It spends none."""

    def inventories(self, records: list[Record]) -> None:
        """It knows its node."""

    def _answered(self, command: NodeCommand) -> None:
        taken_ns = self._awaited.pop(command.seq, None)
        if taken_ns is None:
            return
        age_ms = (self._clock.mono_ns() - taken_ns) // 1_000_000
        counts = self._counts
        counts.answering += not self._answering
        self._answering = True
        counts.answered += 1
        counts.in_time += age_ms <= IN_TIME_MS
        for hold in command.hold:
            self._spool.conclude(self._outcome(command, hold, age_ms))
            counts.outcomes += 1
        if command.hold:
            self._link.wake()

    def _outcome(self, command: NodeCommand, hold: Hold, age_ms: int) -> NodeOutcome:
        return NodeOutcome(
            node=command.node,
            boot_id=command.boot_id,
            seq=command.seq,
            command_id=hold.id,
            rule=hold.rule,
            target=hold.target,
            origin="stream",
            result="applied",
            policy_version=command.policy_version,
            observed_ms=command.observed_ms,
            acted_ms=self._clock.wall_ms(),
            age_ms=age_ms,
            after=hold.limits,
            bound=hold.bound,
            terms=hold.terms,
        )


def count_requests(counts: Counts) -> None:
    """From now on each request that this process sends, by the one method through which the client sends all."""
    send = AIOKafkaConnection.send

    def counted(self: AIOKafkaConnection, request: object, expect_response: bool = True) -> object:  # noqa: FBT001, FBT002 - the client's own
        kind = type(request).__name__.removesuffix("Request")
        counts.requests[kind] = counts.requests.get(kind, 0) + 1
        return send(self, request, expect_response)

    AIOKafkaConnection.send = counted


async def run(bootstrap: str, first: int, count: int) -> None:
    """All agents, their samples spread evenly over a second, until the process is ended."""
    clock, counts = SystemClock(), Counts()
    count_requests(counts)
    async with asyncio.TaskGroup() as works:
        for place in range(count):
            agent = Agent(bootstrap, first + place, counts, clock)
            works.create_task(agent.run(INTERVAL_S * place / count))
        while True:
            counts.at_s = clock.mono_ns() / 1e9
            sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
            sys.stdout.flush()
            await asyncio.sleep(1.0)


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(description="Keep the connections of many agents.")
    parser.add_argument("bootstrap", metavar="BROKERS")
    parser.add_argument("first", type=int, help="number of the first node")
    parser.add_argument("count", type=int, help="how many")
    asked = parser.parse_args()
    uvloop.run(run(asked.bootstrap, asked.first, asked.count))


if __name__ == "__main__":
    main()
