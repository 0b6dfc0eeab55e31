"""The files of a virtual machine: what they say, who may write them, and that readers are never in the way."""

import pytest

from slacktide.deploy.virtual.files import Projection
from slacktide.deploy.virtual.machine import BEST_EFFORT, Machine
from testbed.stories import each_story, story

GIB = 1 << 30


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture
def shown(tmp_path, version):
    """Two best-effort pods that would use everything, shown as files."""
    machine = Machine(cpus=4, mem_bytes=8 * GIB, version=version)
    for uid in ("one", "two"):
        machine.add_pod(uid, "BestEffort").demand_milli = 4000
    return Projection(machine, tmp_path / "node")


class Files:
    """What an agent does to the files, and what the machine makes of it; ``all`` is the best-effort group."""

    def __init__(self, shown):
        self.shown, self.machine, self.refused = shown, shown.machine, []

    def path(self, group):
        return BEST_EFFORT if group == "all" else self.machine.pods[group].path

    def file(self, group):
        cpu = self.shown.cgroup_mount / ("cpu" if self.machine.version == 1 else "") / self.path(group)
        return cpu / ("cpu.cfs_quota_us" if self.machine.version == 1 else "cpu.max")

    def quota(self, group, quota_us):
        """As an agent does: the file is emptied and filled."""
        self.file(group).write_text(f"{quota_us}" if self.machine.version == 1 else f"{quota_us} 100000")

    def text(self, *words):
        """Without a newline."""
        self.file("all").write_text(" ".join(map(str, words)))

    def lift(self, spelling):
        """By one of the spellings of the version."""
        texts = {1: ["-1", "-1\n", "-1"], 2: ["max", "max 100000", "max 100000\n"]}[self.machine.version]
        self.file("all").write_text(texts[spelling])

    def shorten(self, quota_us):
        """As a write looks between its writing and its cutting off."""
        with self.file("all").open("r+") as file:
            file.write(f"{quota_us}\n" if self.machine.version == 1 else f"{quota_us} 100000\n")

    def read_back(self):
        self.refused = [str(one) for one in self.shown.read_back()]

    def come(self, uid):
        self.machine.add_pod(uid, "Burstable", request_milli=500)

    def begin_anew(self, uid):
        self.machine.remove_pod(uid)
        self.machine.add_pod(uid, "BestEffort")

    def usage(self, group):
        v1 = self.machine.version == 1
        file = self.shown.cgroup_mount / ("cpuacct" if v1 else "") / self.path(group)
        file /= "cpuacct.usage" if v1 else "cpu.stat"
        return file.read_text().splitlines()[0] if file.exists() else None

    def state(self):
        folders = sorted(path.name for path in self.shown.cgroup_mount.rglob("pod*"))
        groups = ["all", *self.machine.pods]
        texts = {group: self.file(group).read_text() for group in groups if self.file(group).exists()}
        return {
            "quota files": texts,
            "usage files": [self.usage(group) for group in groups],
            "folders of pods": sorted(set(folders)),
            "quotas": [self.machine.best_effort.quota_us, *(one.quota_us for one in self.machine.pods.values())],
            "used in ms": self.machine.best_effort.usage_ns // 10**6,
            "refused": self.refused,
        }


@each_story("virtual_files")
def test_what_the_files_do(given, steps, shown, snapshot):
    assert story(Files(shown), steps) == snapshot


def test_who_opened_the_old_text_reads_the_old_text(shown):
    """Texts are replaced, never changed: nobody reads the head of one and the tail of another."""
    path = shown.proc_mount / "stat"
    before = path.read_text()
    with path.open() as file:
        shown.machine.step(1000)
        shown.write_files()

        assert file.read() == before
    assert path.read_text() != before


def test_jiffies_of_use_and_idleness_add_up_to_the_time_of_all_cpus(shown):
    shown.machine.step(10_000)
    shown.machine.pods["one"].demand_milli = shown.machine.pods["two"].demand_milli = 0
    shown.machine.step(5_000)
    shown.write_files()
    total, *cpus = [line.split() for line in (shown.proc_mount / "stat").read_text().splitlines() if "cpu" in line]

    assert [int(figure) for figure in total[1:5]] == [4000, 0, 0, 2000]
    assert [sum(int(cpu[place]) for cpu in cpus) for place in (1, 4)] == [4000, 2000]


def test_available_memory_counts_what_can_be_dropped(shown):
    pod = shown.machine.pods["one"]
    pod.mem_bytes, pod.cache_bytes = 2 * GIB, 3 * GIB
    shown.write_files()
    lines = (shown.proc_mount / "meminfo").read_text().splitlines()
    gib = {line.split()[0]: int(line.split()[1]) / (1 << 20) for line in lines}

    assert (gib["MemTotal:"], gib["MemFree:"], gib["MemAvailable:"]) == (8, 3, 6)


def test_an_occupied_folder_is_refused(shown):
    with pytest.raises(FileExistsError):
        Projection(Machine(cpus=1, mem_bytes=GIB), shown.proc_mount.parent)
