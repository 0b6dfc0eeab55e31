"""Figures: what agents' own connections cost three brokers, and what a node costs in all: agent, worker, brokers."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec
import psutil

from bench import cost, log, loop
from bench.links import Counts
from bench.process import Running, Slacktide, environment
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, told
from testbed import rungs
from testbed.brokers import KafkaCluster, running

AGENTS, BRIEF_AGENTS = 2_000, 60
OTHERS, BRIEF_OTHERS = 900, 60
"""Nodes whose samples come through one connection: worker and partitions are loaded as in a cluster of that size."""
SHIFT, BRIEF_SHIFT = 30, 30
"""Agents of one process."""
GROWTH = 0.5
"""So many more agents join at once, as a part of those that are there."""
JOIN_S = 60.0
"""Within it all that join have answers, or they are too many."""
WARM_UP_S, TRIAL_S, MEASURED_S, AGENT_S = 12.0, 10.0, 60.0, 30.0
BRIEF_S = 2.0
JAVA = ("-Xmx512m", "-XX:TieredStopAtLevel=4")
"""As brokers run: all of the JVM's compilers. Those of tests stop at the first, to start quickly."""
PACE_PART, IN_TIME_PART = 0.97, 0.99
"""Of the samples that are due so many are taken, and of these so many answered within the guard's deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some seconds at one size."""

    agents: int
    others: int
    """Nodes without a connection of their own."""
    seconds: float
    brokers_pct: float
    """Of a core, all three."""
    worker_pct: float
    connections: int = 0
    """Of agents, at the end."""
    taken_per_s: float = 0.0
    in_time_per_s: float = 0.0
    """Answers within the guard's deadline."""
    outcomes_per_s: float = 0.0
    requests_per_s: dict[str, float] = field(default_factory=dict)
    """Of agents, by kind."""

    @property
    def nodes(self) -> int:
        """All."""
        return self.agents + self.others

    @property
    def steady(self) -> bool:
        """Whether all agents kept their pace, and the worker and the brokers kept up with them."""
        return (
            self.taken_per_s >= PACE_PART * self.agents and self.in_time_per_s >= IN_TIME_PART * PACE_PART * self.agents
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PerNode:
    """Percent of a core for one node."""

    agent: float
    worker: float
    broker: float
    """What its agent adds, and its part of what the brokers do without any agent."""

    @property
    def sum(self) -> float:
        """Of all three."""
        return self.agent + self.worker + self.broker


def brokers_per_agent_pct(alone: Stretch, full: Stretch) -> float:
    """What one more agent adds to the CPU time of all brokers.

    Args:
        alone: the same worker and other nodes without agents.
        full: with them.

    """
    return (full.brokers_pct - alone.brokers_pct) / full.agents


def per_node(alone: Stretch, full: Stretch, agent_pct: float) -> PerNode:
    """A node's part of everything. The worker's is that of its share of all nodes.

    Args:
        alone: the same worker and other nodes without agents.
        full: with them.
        agent_pct: of one whole agent.

    """
    return PerNode(
        agent=agent_pct,
        worker=full.worker_pct / full.nodes,
        broker=brokers_per_agent_pct(alone, full) + alone.brokers_pct / full.nodes,
    )


def joining(there: int, wanted: int, shift: int) -> int:
    """How many agents join next: whole shifts, but for the last."""
    more = max(1, int(GROWTH * there / shift)) * shift
    return min(more, wanted - there)


def measure(rig: Rig) -> list[Row]:
    """On three brokers of its own.

    Raises:
        CannotRunError: this machine lacks Apache Kafka.

    """
    if (lack := rungs.lacks_kafka()) is not None:
        raise CannotRunError(f"lacks {lack}")
    rig.say("agents: starting three brokers")
    with running(partial(KafkaCluster, java=JAVA)) as cluster:
        return on(rig, cluster)


def on(rig: Rig, cluster: KafkaCluster) -> list[Row]:
    """On three brokers without topics."""
    wanted = rig.nodes or (BRIEF_AGENTS if rig.brief else AGENTS)
    others = BRIEF_OTHERS if rig.brief else OTHERS
    cluster.apply_topics()
    policy = log.USUAL_POLICY
    with (
        loop.worker(rig, cluster.bootstrap, policy=policy) as worker,
        loop.fleet(rig, cluster.bootstrap, others, policy=policy) as fleet,
        ExitStack() as stack,
    ):
        log.wait_caught_up(cluster.bootstrap, 2 * others, JOIN_S, worker, fleet)
        crowd = Crowd(rig, cluster, worker, fleet, others, stack)
        tried = crowd.grow(wanted)
        full = crowd.stretch(BRIEF_S if rig.brief else MEASURED_S)
        rig.say(f"agents: one whole agent beside them, {cost.PODS} pods")
        agent_pct, _, _ = cost.beside(rig, cluster.bootstrap, worker, BRIEF_S if rig.brief else AGENT_S)
        # Last, so that the brokers' JVMs have compiled what they need: what they take without agents is no warm-up.
        crowd.leave()
        alone = crowd.stretch(BRIEF_S if rig.brief else MEASURED_S / 2)
    return rows(wanted, tried, alone, full, agent_pct)


class Crowd:
    """Agents by the shift, beside a worker that answers them and other nodes."""

    def __init__(
        self, rig: Rig, cluster: KafkaCluster, worker: Slacktide, fleet: Running, others: int, stack: ExitStack
    ) -> None:
        self._rig = rig
        self._bootstrap = cluster.bootstrap
        self._ports = {int(node.bootstrap.rpartition(":")[2]) for node in cluster.nodes}
        self._brokers = [psutil.Process(node.pid) for node in cluster.nodes]
        self._worker = worker
        self._fleet = fleet
        self._others = others
        self._stack = stack
        self._shifts: list[tuple[Running, int]] = []
        self._next = others
        """Number of the first node of the next shift: no two have the same."""

    @property
    def agents(self) -> int:
        """How many there are."""
        return sum(size for _, size in self._shifts)

    def grow(self, wanted: int) -> list[Stretch]:
        """Agents join until so many are there, or more would not be steady; those that were too many are gone again.

        The first shift stays in any case: the rows say where it is not steady.
        """
        shift = BRIEF_SHIFT if self._rig.brief else SHIFT
        tried: list[Stretch] = []
        while self.agents < wanted:
            more = joining(self.agents, wanted, shift)
            joined = [self._join(min(shift, more - begun)) for begun in range(0, more, shift)]
            answering = self._answering(joined)
            wait(BRIEF_S if self._rig.brief else WARM_UP_S, *self._all)
            tried.append(self.stretch(BRIEF_S if self._rig.brief else TRIAL_S))
            if not answering or not tried[-1].steady:
                if len(joined) < len(self._shifts):
                    self._leave(joined)
                break
        return tried

    def leave(self) -> None:
        """All agents go."""
        self._leave([process for process, _ in self._shifts])

    def _leave(self, those: Sequence[Running]) -> None:
        for one in those:
            one.__exit__()
        self._shifts = [shift for shift in self._shifts if shift[0] not in those]
        wait(BRIEF_S if self._rig.brief else WARM_UP_S, *self._all)

    def stretch(self, seconds: float) -> Stretch:
        """Look at all for a while."""
        before, cpu_s, begin_s = self._counts(), self._cpu_s(), time.monotonic()
        wait(seconds, *self._all)
        took_s = time.monotonic() - begin_s
        brokers_s, worker_s = (after - at for after, at in zip(self._cpu_s(), cpu_s, strict=True))
        rates: Counter[str] = Counter()
        requests: Counter[str] = Counter()
        for first, last in zip(before, self._counts(), strict=True):
            apart_s = max(1e-9, last.at_s - first.at_s)
            for name in ("taken", "in_time", "outcomes"):
                rates[name] += (getattr(last, name) - getattr(first, name)) / apart_s
            for kind, count in last.requests.items():
                requests[kind] += (count - first.requests.get(kind, 0)) / apart_s
        found = Stretch(
            agents=self.agents,
            others=self._others,
            seconds=took_s,
            brokers_pct=100 * brokers_s / took_s,
            worker_pct=100 * worker_s / took_s,
            connections=sum(
                one.status == psutil.CONN_ESTABLISHED and bool(one.raddr) and one.raddr.port in self._ports
                for process, _ in self._shifts
                for one in process.process.net_connections("tcp")
            ),
            taken_per_s=rates["taken"],
            in_time_per_s=rates["in_time"],
            outcomes_per_s=rates["outcomes"],
            requests_per_s=dict(requests.most_common()),
        )
        self._rig.say(f"agents: {_said(found)}")
        return found

    @property
    def _all(self) -> Sequence[Running]:
        return (self._worker, self._fleet, *(process for process, _ in self._shifts))

    def _join(self, size: int) -> Running:
        command = [sys.executable, "-m", "bench.links", self._bootstrap, str(self._next), str(size)]
        process = self._stack.enter_context(Running(self._rig, f"agents-{self._next}", command, environment()))
        self._shifts.append((process, size))
        self._next += size
        return process

    def _answering(self, joined: Sequence[Running]) -> bool:
        """Whether all that joined have answers, in time."""
        until_s = time.monotonic() + JOIN_S
        due = {process: size for process, size in self._shifts if process in joined}
        while any(_last(process).answering < size for process, size in due.items()):
            if time.monotonic() > until_s:
                return False
            wait(0.5, *self._all)
        return True

    def _counts(self) -> list[Counts]:
        return [_last(process) for process, _ in self._shifts]

    def _cpu_s(self) -> tuple[float, float]:
        """Of all brokers, and of the worker."""
        spent = [process.cpu_times() for process in self._brokers]
        return sum(one.user + one.system for one in spent), self._worker.cpu_s()


def _last(process: Running) -> Counts:
    """The newest whole line of its counts; its warnings stand between them."""
    lines = process.said().rpartition("\n")[0].splitlines()
    newest = next((line for line in reversed(lines) if line.startswith('{"at_s"')), None)
    return Counts() if newest is None else msgspec.json.decode(newest, type=Counts)


def _said(one: Stretch) -> str:
    each = 1 / max(1, one.agents)
    kinds = ", ".join(f"{kind} {rate * each:.1f}" for kind, rate in one.requests_per_s.items())
    return (
        f"{one.agents} agents and {one.others} other nodes: taken {one.taken_per_s:.0f}/s, answered in time "
        f"{one.in_time_per_s:.0f}/s, outcomes {one.outcomes_per_s:.0f}/s, {one.connections} connections; requests an "
        f"agent and second: {kinds or '-'}; CPU brokers {one.brokers_pct:.0f}%, worker {one.worker_pct:.0f}%"
    )


def _kept(one: Stretch) -> str:
    return "steady" if one.steady else "NOT steady"


def rows(wanted: int, tried: Sequence[Stretch], alone: Stretch, full: Stretch, agent_pct: float) -> list[Row]:
    """What was found, at the size at which it was found."""
    size = f"{full.agents:,} of {wanted:,} agents" if full.agents < wanted else f"{full.agents:,} agents"
    head, k = f"three brokers, {size}", 1_000 / full.agents
    requests = sum(full.requests_per_s.values())
    kinds = ", ".join(f"{kind} {rate * k:,.0f}" for kind, rate in full.requests_per_s.items() if rate * k >= 1)
    adds_pct = 1_000 * brokers_per_agent_pct(alone, full)
    its = per_node(alone, full, agent_pct)
    trials = "; ".join(f"{one.agents} {_kept(one)}" for one in tried)
    return [
        told(f"{head}: CPU per node, agent + worker + brokers",
             f"{its.sum:.2f}% of a core ({10 * its.sum:.1f} millicores): agent {its.agent:.2f}%, worker "
             f"{its.worker:.3f}%, brokers {its.broker:.2f}%", n=full.nodes,
             sum_pct=its.sum, agent_pct=its.agent, worker_pct=its.worker, broker_pct=its.broker),
        told(f"{head}: broker CPU per 1,000 agents",
             f"{adds_pct:.0f}% of a core, beyond the {alone.brokers_pct:.0f}% that all three take for {alone.others} "
             f"other nodes without agents; {full.brokers_pct:.0f}% in all; trials: {trials}",
             n=full.agents, per_1000_pct=adds_pct, alone_pct=alone.brokers_pct, full_pct=full.brokers_pct),
        told(f"{head}: connections per 1,000 agents", f"{full.connections * k:,.0f}", n=full.connections,
             per_1000=full.connections * k),
        told(f"{head}: requests a second per 1,000 agents", f"{requests * k:,.0f}: {kinds}",
             per_1000=requests * k, kinds=full.requests_per_s),
        told(f"{head}: worker CPU per 1,000 nodes",
             f"{1_000 * its.worker:.0f}% of a core, at {full.nodes:,} nodes; answered in time "
             f"{100 * full.in_time_per_s / max(1e-9, full.taken_per_s):.1f}% of the agents' samples: {_kept(full)}",
             n=full.nodes, per_1000_pct=1_000 * its.worker, steady=full.steady),
    ]  # fmt: skip
