"""A real container that a real kernel throttles at its limit: it gets more while the node has it, and gives it back."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.groups import CONTAINER, LASTS_S, Groups
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.message import versioned
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst
from testbed.lone_agent import SteppedClock, lone_agent

UID = "6a0e-11aa"
GROUP = f"burstable/pod{UID}"
BASE_US, CEILING_US = 10_000, 60_000
WANTS_20_MS_IN_100 = f"""import time
end = time.monotonic() + {LASTS_S}
while time.monotonic() < end:
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.02: pass
    time.sleep(max(0, begun + 0.1 - time.monotonic()))
"""
LOOK_S = 0.5
LIMIT = Resources(cpu_milli=100)
POD = Pod(
    uid=UID,
    namespace="shop",
    name="web",
    kube_qos="Burstable",
    limits=LIMIT,
    containers=[Container(name="main", id=CONTAINER, limits=LIMIT)],
)
ON = versioned(Policy(version="", cpu_burst=CpuBurst(policy="cfsQuotaBurstOnly", cfs_quota_burst_pct=600)))
OFF = versioned(Policy(version=""))


def node_of(cpu_milli: int) -> NodeFacts:
    amounts = Resources(cpu_milli=cpu_milli)
    return NodeFacts(name="node-1", capacity=amounts, allocatable=amounts)


IDLE, FULL = node_of(64_000), node_of(500)
"""However busy this machine is: a node without one whole CPU has none to lend."""


class Node:
    """An agent whose guard is in charge, for nobody answers."""

    def __init__(self, groups: Groups, kernel: CgroupKernel) -> None:
        self.groups = groups
        self.clock = SteppedClock()
        self.agent = lone_agent(kernel, self.clock, IDLE, policy=ON, pods=[POD], settings={"restore_on_exit": True})
        self.looks(3)

    def look(self) -> list[ContainerBurst]:
        self.clock.pass_ms(1_000)
        sample = self.agent.take()
        assert not [one for one in sample.missing if UID in one.what]
        return sample.burst

    def looks(self, count: int) -> None:
        for _ in range(count):
            self.look()

    def look_until(self, done: Callable[[ContainerBurst], bool], within_s: float = 60) -> None:
        end = time.monotonic() + within_s
        time.sleep(LOOK_S)
        while not any(map(done, self.look())):
            assert time.monotonic() < end, self.quota_us()
            time.sleep(LOOK_S)

    def hold(self, quota_us: int) -> None:
        """As the kubelet does, or an earlier run of the agent."""
        for group in (GROUP, f"{GROUP}/{CONTAINER}"):
            self.groups.quota(group, str(quota_us) if self.groups.version == 1 else f"{quota_us} 100000")

    def quota_us(self) -> int:
        """The pod's and its container's, as the kernel says them: the same, for the pod has one container."""
        texts = {self.groups.quota(group) for group in (GROUP, f"{GROUP}/{CONTAINER}")}
        [text] = texts
        return int(text.split()[0])


@pytest.fixture
def node(groups: Groups, kernel: CgroupKernel) -> Node:
    groups.add_pod("burstable", UID)
    made = Node(groups, kernel)
    made.hold(BASE_US)
    return made


def test_a_throttled_container_gets_what_it_wants_and_a_full_node_takes_it_back(groups: Groups, node: Node) -> None:
    groups.start(GROUP, WANTS_20_MS_IN_100)
    node.look_until(lambda one: bool(one.throttled_ratio))
    node.look_until(lambda one: one.throttled_ratio == 0)

    assert 1.2 * BASE_US <= node.quota_us() <= CEILING_US
    node.agent.inventory(FULL, [POD])
    node.looks(12)
    assert node.quota_us() == BASE_US


def test_a_policy_that_goes_off_gives_all_back_and_lets_go_of_the_files(node: Node) -> None:
    node.hold(2 * BASE_US)
    node.looks(2)
    assert node.quota_us() == 2 * BASE_US, "not throttled, so it stays as it is"
    before = descriptors()
    node.agent.policy(OFF)
    node.look()
    assert node.quota_us() == BASE_US
    node.looks(3)

    assert descriptors() < before


def test_at_the_end_all_goes_back(node: Node) -> None:
    node.hold(2 * BASE_US)
    node.look()
    node.agent.close()

    assert node.quota_us() == BASE_US


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
