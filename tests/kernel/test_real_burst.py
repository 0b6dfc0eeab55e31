"""A real container that a real kernel throttles at its limit: it gets more while the node has it, and gives it back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernel.groups import CONTAINER, Groups
from slacktide.agents.node.bursts import Bursts
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, NodeSample, NodeUse
from slacktide.streams.decisions.node_burst import burst_settings, handed_back

UID = "6a0e-11aa"
GROUP = f"burstable/pod{UID}"
LIMIT_MILLI, BASE_US, CEILING_US = 100, 10_000, 60_000
WANTS_20_MS_IN_100 = """import time
end = time.monotonic() + 60
while time.monotonic() < end:
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.02: pass
    time.sleep(max(0, begun + 0.1 - time.monotonic()))
"""
LOOK_S = 0.5
IDLE_MILLI, FULL_MILLI = 100, 8_000
FACTS = NodeFacts(name="node-1", capacity=Resources(cpu_milli=8_000), allocatable=Resources(cpu_milli=8_000))
LIMITED = Resources(cpu_milli=LIMIT_MILLI)
POD = Pod(
    uid=UID,
    namespace="shop",
    name="web",
    kube_qos="Burstable",
    limits=LIMITED,
    containers=[Container(name="main", id=CONTAINER, limits=LIMITED)],
)
ON = Policy(version="on", cpu_burst=CpuBurst(policy="auto", cfs_quota_burst_pct=600))
OFF = Policy(version="off")


class Node:
    """Looks, decides and sets as an agent does; a second passes for it with each look."""

    def __init__(self, groups: Groups, kernel: CgroupKernel) -> None:
        self.groups, self.kernel = groups, kernel
        self.now_ns = 0
        self.bursts = Bursts(node="node-1", boot_id="1", kernel=kernel)
        kernel.know([POD])

    def look(self, policy: Policy = ON, used_milli: int = IDLE_MILLI) -> list[ContainerBurst]:
        self.now_ns += 1_000_000_000
        reading = self.kernel.read(self.now_ns)
        seen = self.bursts.state(FACTS, [POD], policy, self.now_ns)
        assert seen.missing == []
        sample = NodeSample(
            node="node-1",
            boot_id="1",
            seq=1,
            observed_ms=0,
            interval_ms=1_000,
            policy_version="",
            facts_revision="",
            pods_revision="",
            use=NodeUse(cpu_milli=used_milli),
            pod_use=reading.pod_use,
            limits=None,
            burst=seen.containers,
        )
        self.put(burst_settings(sample, FACTS, [POD], policy))
        return seen.containers

    def put(self, settings) -> None:
        for one in settings:
            self.kernel.put(KnobKey(one.group, one.knob), one.value)

    def quotas(self) -> tuple[str, str]:
        """The pod's and its container's, as the kernel says them."""
        pod, container = self.groups.quota(GROUP), self.groups.quota(f"{GROUP}/{CONTAINER}")
        return pod, container

    def quota_us(self) -> int:
        """Both are the same: the pod has one container."""
        pod, container = (int(text.split()[0]) for text in self.quotas())
        assert pod == container
        return pod

    def looks_until(self, done, within_s: float = 20) -> None:
        end = time.monotonic() + within_s
        while not done(self.look()):
            assert time.monotonic() < end, self.quotas()
            time.sleep(LOOK_S)


def hold(groups: Groups, quota_us: int) -> None:
    """As the kubelet does, or an earlier run of the agent."""
    for group in (GROUP, f"{GROUP}/{CONTAINER}"):
        groups.quota(group, str(quota_us) if groups.version == 1 else f"{quota_us} 100000")


@pytest.fixture
def node(groups: Groups, kernel: CgroupKernel) -> Node:
    groups.add_pod("burstable", UID)
    hold(groups, BASE_US)
    return Node(groups, kernel)


def test_a_throttled_container_gets_what_it_wants_and_a_full_node_takes_it_back(groups: Groups, node: Node) -> None:
    groups.start(GROUP, WANTS_20_MS_IN_100)
    node.looks_until(lambda seen: seen and (seen[0].throttled_ratio or 0) > 0.5)
    node.looks_until(lambda seen: seen[0].throttled_ratio == 0 and node.quota_us() > 1.7 * BASE_US)

    assert node.quota_us() <= CEILING_US
    for _ in range(12):
        node.look(used_milli=FULL_MILLI)
    assert node.quota_us() == BASE_US


def test_a_policy_that_is_off_gives_all_back_and_lets_go_of_the_files(groups: Groups, node: Node) -> None:
    node.look(OFF)
    before = descriptors()
    hold(groups, 2 * BASE_US)
    node.look(ON)
    assert node.quota_us() == 2 * BASE_US, "not throttled, so it stays as it is"
    node.look(OFF)
    assert node.quota_us() == BASE_US
    for _ in range(3):
        node.look(OFF)

    assert descriptors() < before


def test_all_can_be_handed_back_at_the_end(groups: Groups, node: Node) -> None:
    hold(groups, 2 * BASE_US)
    node.look(ON)
    node.put(handed_back(node.bursts.above_limit([POD], node.now_ns), [POD]))

    assert node.quota_us() == BASE_US


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
