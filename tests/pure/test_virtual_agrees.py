"""One model, two ways to it: in memory, and through files with the kernel code that a real node's agent has."""

import random
import tempfile
from pathlib import Path

import msgspec
import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.deploy.virtual.files import Projection
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.sample import Limits
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30
STEP_MS = 2_000
"""By then memory is read again."""
JIFFY_MILLI = 10
"""The node's CPU comes in hundredths of a second: per second, 10 millicores."""


class Pair:
    """Twin machines that are told the same, one read in memory and one through its files."""

    def __init__(self, folder, version):
        machines = [Machine(cpus=4, mem_bytes=8 * GIB, version=version) for _ in range(2)]
        self.plain, self.shown = machines
        self.projection = Projection(self.shown, folder / "node")
        (folder / "state").mkdir()
        self.in_memory = VirtualKernel(self.plain)
        self.through_files = CgroupKernel(
            self.projection.cgroup_mount, self.projection.proc_mount, None, folder / "state"
        )
        self.now_ms = 0

    @property
    def machines(self):
        return self.plain, self.shown

    def step(self):
        assert self.projection.read_back() == []
        for machine in self.machines:
            machine.step(STEP_MS)
        self.projection.write_files()
        self.now_ms += STEP_MS

    def hold(self, limits):
        for kernel in (self.in_memory, self.through_files):
            kernel.hold(limits)

    def read(self):
        readings = [kernel.read(self.now_ms * 1_000_000) for kernel in (self.in_memory, self.through_files)]
        for reading in readings:
            reading.pod_use.sort(key=lambda use: use.uid)
        return readings


@pytest.fixture
def folder():
    """In memory where there is such a place: disks are slow at replacing files by the thousand."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def pair(request, folder):
    return Pair(folder, request.param)


def same(one, other, tolerance):
    return (one is None) == (other is None) and (one is None or abs(one - other) <= tolerance)


def stir(pair, rng, number):
    """Start, stop and change pods, the same ones on both machines."""
    starts, kube_qos = rng.random() < 0.3, rng.choice(["Guaranteed", "Burstable", "BestEffort"])
    limit_milli = None if kube_qos == "BestEffort" else rng.choice([None, None, 700])
    ends = rng.choice(sorted(pair.plain.pods)) if len(pair.plain.pods) > 3 and rng.random() < 0.2 else None
    figures = [(rng.randint(0, 3000), rng.randint(0, GIB), rng.randint(0, GIB)) for _ in range(50)]
    for machine in pair.machines:
        if starts:
            machine.add_pod(f"uid-{number}", kube_qos, limit_milli=limit_milli)
        if ends is not None:
            machine.remove_pod(ends)
        for pod, (demand_milli, mem_bytes, cache_bytes) in zip(machine.pods.values(), figures, strict=False):
            pod.demand_milli, pod.mem_bytes, pod.cache_bytes = demand_milli, mem_bytes, cache_bytes


@pytest.mark.parametrize("seed", range(3))
def test_model_and_files_tell_the_agent_the_same(pair, seed):
    """Through changes of demand, memory, pods and limits: equal readings, but for the files' coarser units."""
    rng = random.Random(seed)
    for number in range(40):
        stir(pair, rng, number)
        pair.step()
        in_memory, through_files = pair.read()

        assert through_files.limits == in_memory.limits
        assert same(through_files.use.cpu_milli, in_memory.use.cpu_milli, JIFFY_MILLI)
        assert same(through_files.use.mem_bytes, in_memory.use.mem_bytes, 1024)
        assert through_files.use.pressure == in_memory.use.pressure
        for file, memory in zip(through_files.pod_use, in_memory.pod_use, strict=True):
            assert same(file.cpu_milli, memory.cpu_milli, 1)
            assert msgspec.structs.replace(file, cpu_milli=None) == msgspec.structs.replace(memory, cpu_milli=None)
        cpuset = rng.choice([None, [0, 1, 2, 3], [0, 1], [1, 2, 3], [3]])
        pair.hold(Limits(be_cfs_quota_us=rng.choice([None, 2_000, 50_000, 330_000]), be_cpuset=cpuset))


def test_an_agents_hold_throttles_the_virtual_pod(pair):
    """Through the files alone: what the agent writes is what the pod gets, and lifting it gives all back."""
    for machine in pair.machines:
        machine.add_pod("batch", "BestEffort").demand_milli = 9000
    pair.step()
    used_milli = []
    for quota_us in (50_000, 200_000, None):
        pair.through_files.read(pair.now_ms * 1_000_000)
        pair.through_files.hold(Limits(be_cfs_quota_us=quota_us))
        pair.step()
        used_milli.append(pair.through_files.read(pair.now_ms * 1_000_000).pod_use[0].cpu_milli)

    assert used_milli == [500, 2000, 4000]


def test_an_agent_finds_the_machines_cpus(pair):
    assert pair.through_files.processors() == pair.in_memory.processors() == pair.plain.processors
    assert [one.core for one in pair.plain.processors] == [0, 0, 2, 2]


def test_a_cpu_set_holds_the_virtual_pod_and_others_than_before_are_taken(pair):
    for machine in pair.machines:
        machine.add_pod("batch", "BestEffort").demand_milli = 9000
    pair.step()
    used_milli = []
    for cpuset in ([0, 1, 2], [3], [0, 1], [0, 1, 2, 3]):
        pair.through_files.read(pair.now_ms * 1_000_000)
        pair.through_files.hold(Limits(be_cfs_quota_us=None, be_cpuset=cpuset))
        pair.step()
        reading = pair.through_files.read(pair.now_ms * 1_000_000)
        used_milli.append(reading.pod_use[0].cpu_milli)
        assert reading.limits == Limits(be_cfs_quota_us=None, be_cpuset=cpuset)

    assert used_milli == [3000, 1000, 2000, 4000]


def test_what_v1_would_refuse_is_seen_at_the_next_reading(folder):
    """A file cannot answer EINVAL: the write is undone, and the agent finds what the kernel really holds."""
    pair = Pair(folder, 1)
    pair.shown.add_pod("batch", "BestEffort", limit_milli=1500)
    pair.projection.write_files()
    pair.through_files.hold(Limits(be_cfs_quota_us=50_000))
    refused = pair.projection.read_back()

    assert [error.path for error in refused] == ["kubepods/besteffort"]
    assert pair.through_files.limits().be_cfs_quota_us is None
