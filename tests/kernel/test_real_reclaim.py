"""Memory is reclaimed before anybody is evicted: of real page cache in a whole kernel, which has PSI."""

import os
import time
from pathlib import Path

import pytest

from kernel.groups import V2_WHOLE, Groups, on
from slacktide.agents.clock import SystemClock
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.read import Notes
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from testbed.lone_agent import lone_agent
from testbed.one_machine import eventually
from testbed.policies import policy_from

pytestmark = on(V2_WHOLE)
MIB = 1 << 20
CACHE_MIB = 96
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=6_400 * MIB)
"""More than the guest has, so that too little of it is free: steps of 64 MiB."""
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
BATCH = Pod(uid="6a0e-11bb", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort", priority=5_000)
SERVICE = Pod(uid="6a0e-11aa", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
SAID = {"enable": True, "memoryEvictThresholdPercent": 90, "memoryEarlyReclaimThresholdPercent": 10}
READS = """
with open({file!r}, "rb", buffering=0) as file:
    while file.read(1 << 20): pass
print(flush=True)
sys.stdin.readline()
"""


def figures() -> dict[str, int]:
    """Of the whole kernel, in bytes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {words[0]: int(words[1]) * 1024 for words in lines}


class ReadingNode:
    """A service and a batch pod, each with page cache of a file that it has read once."""

    def __init__(self, groups: Groups, kernel: CgroupKernel, folder: Path) -> None:
        self.groups, self.kernel, self.spool = groups, kernel, MemorySpool()
        kernel._node.mem_bytes = self._mem_bytes  # type: ignore[method-assign]
        self.folders: dict[str, Path] = {}
        for pod in (SERVICE, BATCH):
            (folder / pod.name).write_bytes(b"x" * (CACHE_MIB * MIB))
        # Whose process brings a page in first pays for it: so what was written from outside is dropped.
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
        for tier, pod in (("burstable", SERVICE), ("besteffort", BATCH)):
            group = groups.add_pod(tier, pod.uid)
            groups.start(group, READS.format(file=str(folder / pod.name))).stdout.readline()
            self.folders[pod.name] = groups.cpu / group

    def current(self, pod: Pod) -> int:
        return int((self.folders[pod.name] / "memory.current").read_text())

    def agent(self, **more: object):
        policy = policy_from(threshold={"clusterStrategy": SAID | more})
        return lone_agent(
            self.kernel, SystemClock(), FACTS, spool=self.spool, policy=policy, pods=[SERVICE, BATCH],
            settings={"guard_deadline_ms": 1},
        )  # fmt: skip

    def _mem_bytes(self, notes: Notes) -> int:
        """Between the thresholds."""
        return CAPACITY.mem_bytes // 2


@pytest.fixture
def node(groups: Groups, kernel: CgroupKernel, tmp_path: Path) -> ReadingNode:
    return ReadingNode(groups, kernel, tmp_path)


def test_page_cache_of_a_best_effort_pod_is_given_back_and_a_service_keeps_its_own(node: ReadingNode) -> None:
    batch, service = node.current(BATCH), node.current(SERVICE)
    assert min(batch, service) > CACHE_MIB * MIB * 0.8
    agent, before = node.agent(), figures()

    def fallen() -> bool:
        agent.take()
        time.sleep(0.2)
        return node.current(BATCH) < batch - CACHE_MIB * MIB // 2

    assert eventually(fallen, 120)
    after = figures()
    agent.close()
    assert node.current(SERVICE) > service - MIB
    told = [one for _, one in node.spool.pending(1_000) if one.reclaimed is not None]
    assert {one.target for one in told} == {f"pod/{BATCH.uid}"}
    assert sum(one.reclaimed.freed_bytes for one in told) > CACHE_MIB * MIB // 2
    assert all(one.reclaimed.took_us for one in told)
    assert after["MemFree:"] - before["MemFree:"] > CACHE_MIB * MIB // 4
    moved = abs(after["MemAvailable:"] - before["MemAvailable:"])
    assert moved < CACHE_MIB * MIB // 4, "page cache counted as available before"


def test_a_dry_run_leaves_it_where_it_is(node: ReadingNode) -> None:
    before = node.current(BATCH)
    agent = node.agent(memoryEvictDryRun=True)

    def told() -> bool:
        agent.take()
        time.sleep(0.2)
        return any(one.reclaimed is not None for _, one in node.spool.pending(1_000))

    assert eventually(told, 120)
    agent.close()
    assert node.current(BATCH) > before - MIB
    assert {one.result for _, one in node.spool.pending(1_000) if one.reclaimed is not None} == {"dry-run"}
