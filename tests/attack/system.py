"""A small running system: virtual nodes with an agent each, workers of which one governs, and a policy that acts."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from attack.wire import Raw, of, put
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources, revision_of
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.topics import COMMAND, INVENTORY, POLICY, SAMPLE
from testbed.history.answers import Name, name_of
from testbed.history.records import READ, History, read_history
from testbed.hosts import HERE, Host
from testbed.one_machine import CPUS, MEM_BYTES, VirtualNode, eventually
from testbed.parts import SLACKTIDE, Part
from testbed.policies import policy_from

AMOUNTS = Resources(cpu_milli=1000 * CPUS, mem_bytes=MEM_BYTES)
QUIET_S, SETTLE_S = 60.0, 3.0
MOMENT_MS, START_S = 2_000, 60.0
GOVERNS = "slacktide_governor_governs"
STRATEGY = {
    "enable": True,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cfsQuota",
    "memoryEvictThresholdPercent": 60,
    "memoryEvictLowerPercent": 50,
}
BUDGET = {"clusterMax": 20, "nodeMax": 5, "namespaceMax": 15, "intervalSeconds": 5, "leaseSeconds": 3}
"""Leases short enough to end and begin again while a test runs."""


def configs(**strategy: object) -> dict[str, object]:
    """The operator's ConfigMap, with further fields of the cluster's strategy."""
    colocation = {"enable": True, "metricAggregateDurationSeconds": 10}
    return {"colocation": colocation, "threshold": {"clusterStrategy": STRATEGY | strategy}, "budget": BUDGET}


def policy_with(**strategy: object) -> Policy:
    """What the operator asks for."""
    policy = policy_from(**configs(**strategy))
    return msgspec.structs.replace(policy, node_source="inventory")


class System:
    """Parts that are killed and started again; nodes that go on whatever becomes of their agents."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        nodes: int = 2,
        workers: int = 2,
        hosts: Mapping[str, Host] | None = None,
        worker_options: Sequence[str] = (),
        agent_options: Sequence[str] = (),
        agent_program: Sequence[str] = (SLACKTIDE,),
        worker_program: Sequence[str] = (SLACKTIDE,),
    ) -> None:
        self.bootstrap = bootstrap
        self._hosts = hosts or {}
        self._answered_until_ms = 0
        """Up to then all samples were seen to be answered."""
        self._states: dict[str, Path] = {}
        self._worker_options, self._agent_options = worker_options, agent_options
        self._agent_program, self._worker_program = agent_program, worker_program
        self.temporary = folder / "tmp"
        """Where parts make what is temporary."""
        self.temporary.mkdir()
        self.policy = policy_with()
        self.nodes = [_node(folder, f"node-{number}") for number in range(nodes)]
        self.workers = [self._worker(folder, f"worker-{number}") for number in range(workers)]
        self.agents = [self._agent(folder, node) for node in self.nodes]
        self._running = contextlib.ExitStack()
        self.in_test = self._hosts.get("test", HERE).inside

    @property
    def parts(self) -> list[Part]:
        """All processes."""
        return [*self.workers, *self.agents]

    def agent_of(self, node: VirtualNode) -> Part:
        """The agent of a node."""
        return self.agents[self.nodes.index(node)]

    def state_of(self, part: Part) -> Path | None:
        """The folder where an agent keeps what outlives it; None: it has none."""
        return self._states.get(part.name)

    @property
    def governor(self) -> Part:
        """The worker that governs evictions now."""
        found = eventually(lambda: [part for part in self.workers if part.metric(GOVERNS) == 1], START_S)
        assert found, "nobody governs"
        return found[0]

    def _worker(self, folder: Path, name: str) -> Part:
        arguments = ["stream", "--bootstrap", self.bootstrap, "--worker-name", name]
        return self._part(name, folder, [*arguments, *self._worker_options], self._worker_program)

    def _agent(self, folder: Path, node: VirtualNode) -> Part:
        name = f"agent-{node.name}"
        state = self._states[name] = folder / f"state-{node.name}"
        arguments = ["agent", "--bootstrap", self.bootstrap, *node.arguments, "--state-folder", str(state)]
        arguments += ["--fetch-wait-ms", "50", *self._agent_options]
        return self._part(name, folder, arguments, self._agent_program)

    def _part(self, name: str, folder: Path, arguments: Sequence[str], program: Sequence[str]) -> Part:
        host = self._hosts.get(name, HERE)
        prefix = [*host.prefix, "env", f"TMPDIR={self.temporary}"]
        return Part(name, folder, arguments, program=program, prefix=prefix, inside=host.inside)

    def __enter__(self) -> Self:
        for node in self.nodes:
            self._running.enter_context(node)
        self.publish()
        for part in self.parts:
            part.start()
        for part in self.parts:
            part.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts:
            part.kill()
        self._running.close()

    def publish(self, policy: Policy | None = None) -> None:
        """Policy and inventory, as their writers repeat them."""
        self.policy = policy or self.policy
        facts = {node.name: NodeFacts(name=node.name, capacity=AMOUNTS, allocatable=AMOUNTS) for node in self.nodes}
        self.put(
            of(POLICY, KEY, self.policy),
            *(
                of(INVENTORY, name, NodeInventory(node=name, revision=revision_of(one), facts=one))
                for name, one in facts.items()
            ),
        )

    def put(self, *records: Raw, **settings: Any) -> list[tuple[str, int, int]]:
        """Write records from where the test is."""
        return self.in_test(lambda: put(self.bootstrap, records, **settings))

    def history(self) -> History:
        """All that happened; agents end first, so that nothing moves while it is read."""
        for agent in self.agents:
            agent.stop()
        assert eventually(lambda: not self.unanswered(0), QUIET_S, every_s=1.0), f"unanswered: {self.unanswered(0)[:5]}"
        records = self.in_test(lambda: read_history(self.bootstrap))
        return History(records, kernels={node.name: list(node.shown) for node in self.nodes})

    def glimpse(self) -> History:
        """What happened so far, while everything goes on: answers are read before samples, and no kernel is asked."""
        topics = [COMMAND, *(topic for topic in READ if topic != COMMAND)]
        records = self.in_test(lambda: read_history(self.bootstrap, topics))
        return History(records, until_ms=self._answered_until_ms)

    def heal(self) -> None:
        """All parts run again."""
        for part in self.parts:
            part.resume()
            part.start()
        for part in self.parts:
            part.wait_ready()

    def wait_quiet(self, settle_s: float = SETTLE_S) -> None:
        """Wait until every honest sample is answered, and a while longer.

        Raises:
            AssertionError: it does not come to that.

        """
        left: list[Name] = []

        def answered() -> bool:
            nonlocal left
            left = self.unanswered()
            return not left

        assert eventually(answered, QUIET_S, every_s=0.5), f"{len(left)} samples unanswered: {left[:5]}"
        time.sleep(settle_s)

    def unanswered(self, moment_ms: int = MOMENT_MS) -> list[Name]:
        """Samples that are older than a moment and have no answer."""
        records = self.in_test(lambda: read_history(self.bootstrap, (SAMPLE, COMMAND)))
        history = History(records, nodes=frozenset(node.name for node in self.nodes))
        newest = max((entry.at_ms for entry in history.samples), default=0)
        answers = {name_of(entry.body) for entry in history.of(COMMAND, NodeCommand)}
        old = [name_of(entry.body) for entry in history.samples if entry.at_ms <= newest - moment_ms]
        left = [name for name in old if name not in answers]
        if not left:
            self._answered_until_ms = newest - moment_ms
        return left

    def described(self) -> str:
        """How the parts are, for a failed assertion."""
        return "\n\n".join(f"{part.name} (started {part.starts} times):\n{part.last_words()}" for part in self.parts)


def _node(folder: Path, name: str) -> VirtualNode:
    place = folder / name
    place.mkdir()
    return VirtualNode(place, name)
