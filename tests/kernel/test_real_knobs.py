"""Real processes feel what their pods' specs bought, on each version of cgroups; and a real quarrel over a knob."""

import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from kernel.groups import CONTAINER, V1, Groups, on
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, MemoryQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from slacktide.schemas.sample import Limits
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.one_machine import eventually

MIB = 1 << 20
AMOUNTS = Resources(cpu_milli=64_000, mem_bytes=64 << 30)
FACTS = NodeFacts(name="node-1", capacity=AMOUNTS, allocatable=AMOUNTS)
ON = Policy(version="on", colocation=Colocation(enable=True), cpu_burst=CpuBurst(policy="auto", cpu_burst_pct=50))
OFF = Policy(version="off")
TAKES_64_MIB = "held = bytearray(b'x' * (64 << 20)); print(len(held), flush=True); sys.stdin.readline()"


def pod_of(uid: str, kube_qos: str, amounts: Resources, requests: Resources | None = None) -> Pod:
    asked = amounts if requests is None else requests
    return Pod(
        uid=uid,
        namespace="shop",
        name=uid,
        kube_qos=kube_qos,
        requests=asked,
        limits=amounts,
        containers=[Container(name="main", id=CONTAINER, requests=asked, limits=amounts)],
    )


class Node:
    """An agent whose guard is in charge, for nobody answers, over pods that are there."""

    def __init__(self, groups: Groups, kernel: CgroupKernel, *pods: Pod) -> None:
        self.kernel, self.clock, self.spool = kernel, SteppedClock(), MemorySpool()
        self.groups = {
            pod.uid: groups.add_pod("besteffort" if pod.kube_qos == "BestEffort" else "burstable", pod.uid)
            for pod in pods
        }
        for pod in pods:
            quota_us = (pod.limits.cpu_milli or 0) * 100
            for group in (self.groups[pod.uid], f"{self.groups[pod.uid]}/{CONTAINER}"):
                if quota_us:
                    groups.quota(group, str(quota_us) if groups.version == 1 else f"{quota_us} 100000")
        self.agent = lone_agent(kernel, self.clock, FACTS, spool=self.spool, policy=ON, pods=pods)
        self.pass_s(3)

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.pass_ms(1_000)
            self.agent.take()

    def outcomes(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(10_000) if one.knob is not None]

    def held(self, group: str, *knobs: str) -> list[int | None]:
        keys = [KnobKey(group, knob) for knob in knobs]
        return [self.kernel.held(keys).values[key] for key in keys]


def used_milli(kernel: CgroupKernel, seconds: float) -> dict[str, int]:
    kernel.read(time.monotonic_ns())
    time.sleep(seconds)
    return {use.uid: use.cpu_milli or 0 for use in kernel.read(time.monotonic_ns()).pod_use}


def test_who_bought_more_gets_more_of_a_cpu_that_both_want(groups: Groups, kernel: CgroupKernel) -> None:
    little, much = (
        pod_of(uid, "BestEffort", Resources(batch_mem_bytes=64 * MIB), Resources(batch_cpu_milli=milli))
        for uid, milli in (("1-little", 250), ("2-much", 1000))
    )
    node = Node(groups, kernel, little, much)
    for pod in (little, much):
        os.sched_setaffinity(groups.start(node.groups[pod.uid]).pid, {0})
    used: dict[str, int] = {}

    def shared() -> bool:
        """In some second: one that others cut short says little."""
        used.update(used_milli(kernel, 1.5))
        return 2 < used["2-much"] / max(1, used["1-little"]) < 8

    assert eventually(shared, 60), used


def test_a_pod_is_held_to_the_cpu_that_it_bought(groups: Groups, kernel: CgroupKernel) -> None:
    node = Node(groups, kernel, pod_of("1-be", "BestEffort", Resources(batch_cpu_milli=100)))
    groups.start(node.groups["1-be"])

    assert eventually(lambda: groups.throttling(node.groups["1-be"]).throttled >= 5, 60)
    # A guest whose host is busy counts what it waited for, too; without a quota it is a whole CPU.
    assert eventually(lambda: 0 < used_milli(kernel, 1)["1-be"] < 450, 60)
    assert node.held("pod/1-be", "cfs_quota_us") == [10_000]
    assert all(one.result == "applied" for one in node.outcomes())


def test_free_pods_get_what_a_mid_pod_leaves_and_the_mid_pod_its_limit(groups: Groups, kernel: CgroupKernel) -> None:
    """Both lie in the best-effort tier, whose limit holds the free pod alone."""
    bought = Resources(mid_cpu_milli=500, mid_mem_bytes=64 * MIB)
    mid = msgspec.structs.replace(pod_of("1-mid", "BestEffort", bought), qos_label="LS", priority=7_500)
    bought = Resources(free_cpu_milli=4_000, free_mem_bytes=64 * MIB)
    free = msgspec.structs.replace(pod_of("2-free", "BestEffort", bought), qos_label="BE", priority=3_500)
    node = Node(groups, kernel, mid, free)
    bought_knobs = ("cfs_quota_us", "mem_limit_bytes")
    assert node.held("pod/1-mid/main", *bought_knobs) == node.held("pod/1-mid", *bought_knobs) == [50_000, 64 * MIB]
    assert node.held("pod/2-free/main", "cpu_shares", "mem_limit_bytes") == [2, 64 * MIB]

    kernel.hold(Limits(be_cfs_quota_us=10_000))
    for pod in (mid, free):
        os.sched_setaffinity(groups.start(node.groups[pod.uid]).pid, {0})

    def yields() -> bool:
        used = used_milli(kernel, 1.5)
        return used["1-mid"] > 2 * max(1, used["2-free"])

    assert eventually(yields, 60)
    assert kernel.limits().be_cfs_quota_us == 10_000
    assert groups.quota("besteffort").split()[0] in {"-1", "max"}


def test_a_pod_that_takes_more_memory_than_it_bought_is_killed(groups: Groups, kernel: CgroupKernel) -> None:
    node = Node(groups, kernel, pod_of("1-be", "BestEffort", Resources(batch_mem_bytes=32 * MIB)))
    process = groups.start(node.groups["1-be"], TAKES_64_MIB)

    assert process.wait(timeout=60) == -signal.SIGKILL
    assert node.held("pod/1-be", "mem_limit_bytes") == node.held("pod/1-be/main", "mem_limit_bytes") == [32 * MIB]


def test_bursts_are_taken_and_all_is_given_back(groups: Groups, kernel: CgroupKernel) -> None:
    service = pod_of("1-ls", "Burstable", Resources(cpu_milli=500, mem_bytes=64 * MIB))
    batch = pod_of("2-be", "BestEffort", Resources(batch_cpu_milli=500, batch_mem_bytes=64 * MIB))
    node = Node(groups, kernel, service, batch)
    bought = ("cpu_shares", "cfs_quota_us", "mem_limit_bytes")
    shares = 512 if groups.version == 1 else kernel.as_reads_back("cpu_shares", 512)

    assert [node.held(f"pod/1-ls{inside}", "cfs_burst_us") for inside in ("", "/main")] == [[25_000], [25_000]]
    assert node.held("pod/2-be/main", *bought) == node.held("pod/2-be", *bought) == [shares, 50_000, 64 * MIB]
    node.agent.policy(OFF)
    node.pass_s(3)
    assert [node.held(f"pod/1-ls{inside}", "cfs_burst_us") for inside in ("", "/main")] == [[0], [0]]
    assert node.held("pod/2-be/main", *bought) == node.held("pod/2-be", *bought) == [2, None, None]
    assert {one.result for one in node.outcomes()} == {"applied"}


def test_qos_classes_are_set_as_far_as_the_kernel_can_and_given_back(groups: Groups, kernel: CgroupKernel) -> None:
    """Idle as the best-effort group was, it would come back with Linux' default weight, not with the kubelet's."""
    node = Node(groups, kernel, pod_of("1-ls", "Burstable", Resources(cpu_milli=500, mem_bytes=64 * MIB)))
    memory = MemoryQos(enable=True, min_limit_pct=50, low_limit_pct=75, throttling_pct=50)
    idle = QosClass(cpu=CpuQos(enable=True, sched_idle=1))
    strategy = ResourceQos(policies=QosPolicies(cpu="coreSched"), ls=QosClass(mem=memory), be=idle)
    node.agent.policy(Policy(version="qos", resource_qos=strategy))
    node.pass_s(3)
    protected = ("mem_min_bytes", "mem_low_bytes")
    lacking = {one.reason for one in node.outcomes() if one.result == "failed"}

    assert node.held("tier/besteffort", "cpu_idle") == [1]
    if groups.version == 1:
        assert lacking == {
            f"the kernel lacks {knob}: cgroup v1 does not have it" for knob in (*protected, "mem_high_bytes")
        }
    else:
        assert lacking == set()
        for group in ("pod/1-ls", "pod/1-ls/main", "tier/burstable", "tier/guaranteed"):
            assert node.held(group, *protected) == [32 * MIB, 48 * MIB]
        assert node.held("pod/1-ls/main", "mem_high_bytes") == [64 * MIB]
    node.agent.policy(OFF)
    node.pass_s(3)
    assert node.held("tier/besteffort", "cpu_idle", "cpu_shares") == [0, 2]
    if groups.version == 2:
        assert node.held("pod/1-ls/main", *protected, "mem_high_bytes") == [0, 0, None]
        assert node.held("tier/burstable", *protected) == [0, 0]


def test_an_idle_pod_yields_to_its_siblings_and_gets_its_weight_back(groups: Groups, kernel: CgroupKernel) -> None:
    """A critical pod in the best-effort tier, as kube-proxy, keeps its rank; the tier's weight stays the kubelet's."""
    batch = pod_of("1-be", "BestEffort", Resources(batch_cpu_milli=500))
    critical = msgspec.structs.replace(pod_of("2-proxy", "BestEffort", Resources()), priority=2_000_001_000)
    node = Node(groups, kernel, batch, critical)
    idle = QosClass(cpu=CpuQos(enable=True, sched_idle=1))
    strategy = ResourceQos(policies=QosPolicies(cpu="podIdle"), be=idle)
    node.agent.policy(msgspec.structs.replace(ON, version="idle", resource_qos=strategy))
    node.pass_s(30)
    idled = [node.held(f"pod/{uid}", "cpu_idle") for uid in ("1-be", "2-proxy")]
    for pod in (batch, critical):
        os.sched_setaffinity(groups.start(node.groups[pod.uid]).pid, {0})
    used: dict[str, int] = {}

    def yields() -> bool:
        used.update(used_milli(kernel, 1.5))
        return used["2-proxy"] > 20 * max(1, used["1-be"])

    assert eventually(yields, 60), used
    weight = ("cpu.shares", "2") if groups.version == 1 else ("cpu.weight", "1")
    (groups.cpu / "besteffort" / weight[0]).write_text(weight[1])  # as the kubelet does each minute

    assert idled == [[1], [0]]
    assert {one.result for one in node.outcomes()} == {"applied"}
    node.agent.policy(msgspec.structs.replace(ON, version="on"))
    node.pass_s(30)
    shares = 512 if groups.version == 1 else kernel.as_reads_back("cpu_shares", 512)
    assert node.held("pod/1-be", "cpu_idle", "cpu_shares") == [0, shares]
    node.agent.policy(OFF)
    node.pass_s(3)
    assert node.held("pod/1-be", "cpu_idle", "cpu_shares") == [0, 2]


@on(V1)
def test_on_v1_what_a_pod_bought_comes_back_when_the_limit_of_all_is_lifted(
    groups: Groups, kernel: CgroupKernel
) -> None:
    """The kernel refuses a pod that holds more than the best-effort group."""
    kernel.hold(Limits(be_cfs_quota_us=50_000))
    pod = groups.add_pod("besteffort", "1-be")
    kernel.know([pod_of("1-be", "BestEffort", Resources(batch_cpu_milli=2000))])
    kernel.read(1)
    kernel.put(KnobKey("pod/1-be", "cfs_quota_us"), 200_000)
    kernel.put(KnobKey("pod/1-be/main", "cfs_quota_us"), 200_000)
    suppressed = groups.quota(pod), groups.quota(f"{pod}/{CONTAINER}")
    kernel.hold(Limits(be_cfs_quota_us=None))

    assert suppressed == ("50000", "50000")
    assert (groups.quota(pod), groups.quota(f"{pod}/{CONTAINER}")) == ("200000", "200000")


@on(V1)
def test_somebody_who_writes_a_knob_all_the_time_is_told_of_and_left_alone(
    groups: Groups, kernel: CgroupKernel
) -> None:
    node = Node(groups, kernel, pod_of("1-be", "BestEffort", Resources(batch_cpu_milli=500)))
    file = Path("/sys/fs/cgroup/cpu", groups.kubepods, node.groups["1-be"], "cpu.shares")
    stop, written = threading.Event(), threading.Event()

    def insist() -> None:
        while not stop.is_set():
            file.write_text("77")
            written.set()
            time.sleep(0.001)

    rival = threading.Thread(target=insist)
    rival.start()
    try:
        for _ in range(50):
            written.clear()
            written.wait(60)
            node.pass_s(1)
    finally:
        stop.set()
        rival.join()
    about = [one for one in node.outcomes() if (one.target, one.knob.knob) == ("pod/1-be", "cpu_shares")]

    assert [one.result for one in about if one.result == "refused"] == ["refused"]
    assert len(about) <= 6, [one.reason for one in about]  # at first, one each for two changes, and perhaps a retry
    assert file.read_text() == "77\n"
