"""From pressure to memory that is free again: an agent evicts real processes, one when one is enough."""

import time
from pathlib import Path

import pytest

from kernel.groups import V1, Groups, on
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.read import Notes
from slacktide.agents.node.evict.victims import Standing
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from testbed.lone_agent import lone_agent
from testbed.one_machine import eventually
from testbed.policies import policy_from

MIB = 1 << 20
NODE_BYTES = 400 * MIB
CAPACITY = Resources(cpu_milli=2_000, mem_bytes=NODE_BYTES)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
BOOT = "000000000001-0badcafe"
BY_MEMORY = policy_from(
    threshold={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 40, "memoryEvictLowerPercent": 30}}
)
EATS = """import signal
if {deaf}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = bytearray(b'x' * ({mib} << 20))
print(flush=True)
sys.stdin.readline()
"""


class SkippingClock:
    """The machine's own, which can be put forward."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def mono_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns

    def wall_ms(self) -> int:
        return (time.time_ns() + self.ahead_ns) // 1_000_000


class SmallNode:
    """A node that consists of its pods: its memory is what their group has, so that nothing else here shakes it."""

    def __init__(self, groups: Groups, folder: Path) -> None:
        self.groups = groups
        self.clock = SkippingClock()
        self.spool = MemorySpool()
        self.pods: list[Pod] = []
        self.kernel = CgroupKernel(Path("/sys/fs/cgroup"), Path("/proc"), groups.kubepods, folder)
        self.kernel._node.mem_bytes = self._mem_bytes  # type: ignore[method-assign]

    def run(self, name: str, mib: int, *, deaf: bool = False, priority: int):
        """A pod that holds so much memory."""
        group = self.groups.add_pod("besteffort", name)
        process = self.groups.start(group, EATS.format(mib=mib, deaf=deaf))
        process.stdout.readline()
        self.pods.append(Pod(uid=name, namespace="batch", name=name, qos_label="BE", priority=priority))
        return process

    def agent(self, *, credit: int) -> NodeAgent:
        made = lone_agent(
            self.kernel, self.clock, FACTS, spool=self.spool, boot_id=BOOT, policy=BY_MEMORY, pods=self.pods,
            settings={"grace_ms_max": 1_000},
        )  # fmt: skip
        lease = EvictionCredit(node="node-1", boot_id=BOOT, epoch=1, number=1, granted=credit, ttl_ms=10**6)
        made.credit(lease, self.clock.mono_ns())
        return made

    def tick(self, agent: NodeAgent, *, after_s: float = 0.3) -> NodeSample:
        """A sample, which the guard answers: Kafka is unreachable."""
        time.sleep(after_s)
        sample = agent.take()
        if agent.in_charge == "stream":
            self.clock.ahead_ns += 10**9
            agent.overdue()
        return sample

    def told(self) -> list[tuple[str, str]]:
        """Whose eviction began or ended, by the outcomes in their order."""
        return [(one.target, one.bound) for one in self.outcomes()]

    def outcomes(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(1_000) if one.pod is not None]

    def _mem_bytes(self, notes: Notes) -> int:
        """Of the pods' own group."""
        memory = Path("/sys/fs/cgroup/memory" if self.groups.version == 1 else "/sys/fs/cgroup", self.groups.kubepods)
        file = "memory.usage_in_bytes" if self.groups.version == 1 else "memory.current"
        return int((memory / file).read_text())


@pytest.fixture
def node(groups: Groups, tmp_path: Path) -> SmallNode:
    return SmallNode(groups, tmp_path)


@pytest.mark.story
def test_one_victim_is_enough_and_no_other_goes_while_it_is_dying(node) -> None:
    deaf = node.run("first", 120, deaf=True, priority=5_000)
    spared = node.run("second", 60, priority=5_500)
    agent = node.agent(credit=9)
    before = node.tick(agent)
    while_dying = [node.tick(agent) for _ in range(2)]
    assert deaf.poll() is None
    assert [sample.evict.dying for sample in while_dying] == [["first"]] * 2
    node.clock.ahead_ns += 5 * 10**9
    assert eventually(lambda: node.tick(agent) and deaf.poll() is not None, 60)
    after = [node.tick(agent) for _ in range(2)][-1]

    assert before.use.mem_bytes - after.use.mem_bytes > 100 * MIB, "seen to be free"
    assert node.told() == [("pod/first", "formula"), ("pod/first", "killed")]
    assert spared.poll() is None
    assert after.evict.since_mem_ms > 5_000, "its cool-down is over, and nobody is wanted"


@on(V1)
def test_without_credit_the_victim_is_frozen_and_goes_when_credit_comes(node) -> None:
    process = node.run("first", 170, priority=5_000)
    agent = node.agent(credit=0)
    node.tick(agent)
    node.clock.ahead_ns += 4 * 10**9
    node.tick(agent)
    assert node.kernel.best_effort.frozen() == {"first"}
    assert process.poll() is None
    agent.credit(
        EvictionCredit(node="node-1", boot_id=BOOT, epoch=1, number=2, granted=1, ttl_ms=10**6), node.clock.mono_ns()
    )
    node.tick(agent)
    process.wait(60)
    node.tick(agent)

    bounds = [bound for _, bound in node.told()]
    assert bounds == ["formula", "formula", "frozen", "formula", "thawed", "ended"]
    assert agent.evicting == Standing(dying=0, stuck=0, frozen=0, throttled=False, freezes=True)


@on(V1)
def test_an_agent_that_is_gone_leaves_nobody_frozen_once_another_one_starts(node) -> None:
    node.run("first", 170, priority=5_000)
    agent = node.agent(credit=0)
    node.tick(agent)
    node.clock.ahead_ns += 4 * 10**9
    node.tick(agent)
    assert node.kernel.best_effort.frozen() == {"first"}
    node.agent(credit=0)

    assert node.kernel.best_effort.frozen() == frozenset()
    assert node.spool.interrupted() == []
