"""Holding a limit and binding to CPUs: what is written, what is never written, and what is said when it fails."""

import os
from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.apply import FILE, Originals
from slacktide.agents.node.cgroup.kernel import processors
from slacktide.agents.node.cgroup.plan import Bandwidth, Clipped, Write
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Processor
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.cpu_list import cpu_list
from testbed.stories import each_story, story
from testbed.vectors import each_row

CLIPPED = {PurePosixPath("pod1/c1"): Clipped(Bandwidth(50_000, 100_000), (Bandwidth(20_000, 100_000),))}
GROUPS = ("", "burstable", "burstable/pod1", "besteffort", "besteffort/pod2", "besteffort/pod2/c1", "pod3")
V1 = {
    "cpu/kubepods/{}/cpu.cfs_quota_us": "-1",
    "cpu/kubepods/{}/cpu.cfs_period_us": "100000",
    "cpuset/kubepods/{}/cpuset.cpus": "0-3",
    "cpuset/kubepods/{}/cpuset.effective_cpus": "0-3",
}
V2 = {"kubepods/{}/cpu.max": "max 100000", "kubepods/{}/cpuset.cpus": "", "kubepods/{}/cpuset.cpus.effective": "0-3"}
CONTROL = {
    "cgroup.controllers": "cpuset cpu memory",
    "cgroup.subtree_control": "cpu",
    "kubepods/cgroup.subtree_control": "memory",
}


class Held:
    """Groups with one pod in each tier, without limits and with CPUs 0 to 3; on v2 the CPUs are not said."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder, self.mount, self.version = folder, folder / "cgroup", version
        for group in GROUPS:
            for name, text in (V1 if version == 1 else V2).items():
                self.write(name.format(group), text)
        for name, text in CONTROL.items() if version == 2 else ():
            self.write(name, text)
        self.cpu, self.cpuset = (self.mount / name for name in (("cpu", "cpuset") if version == 1 else ("", "")))
        self.quota_file = self.cpu / "kubepods/besteffort" / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")
        self.cpus_file = self.cpuset / "kubepods/besteffort/cpuset.cpus"
        self.kernel = CgroupKernel(self.mount, folder / "proc", None, folder)
        self.before, self.error, self.missing = self.texts(), "", []

    def write(self, name: str, text: str) -> None:
        (self.mount / name).parent.mkdir(parents=True, exist_ok=True)
        (self.mount / name).write_text(f"{text}\n")

    def texts(self) -> dict[str, str]:
        files = (path for path in self.mount.rglob("*") if path.is_file())
        return {os.path.relpath(path, self.mount): path.read_text() for path in files}

    def hold(self, quota_us: int | str, cpus: str = "") -> None:
        quota = None if quota_us == "unlimited" else quota_us
        self.error = ""
        try:
            self.kernel.hold(Limits(be_cfs_quota_us=quota, be_cpuset=cpu_list(str(cpus)) if cpus != "" else None))
        except CgroupError as error:
            self.error = self.short(error)

    def half_a_period(self) -> None:
        if self.version == 1:
            self.quota_file.with_name("cpu.cfs_period_us").write_text("50000\n")
        else:
            self.quota_file.write_text("30000 50000\n")

    def age(self) -> None:
        """The quota's file seems to be old."""
        os.utime(self.quota_file, ns=(0, 0))

    def link(self, which: str) -> None:
        """A link instead of the file: it is read, but never written through."""
        file = self.quota_file if which == "quota" else self.cpus_file
        file.rename(file.with_name("elsewhere"))
        file.symlink_to("elsewhere")

    def say(self, which: str, *words: object) -> None:
        file = self.quota_file if which == "quota" else self.cpus_file
        file.write_text(" ".join(map(str, words)) + "\n")

    def above_has(self, cpus: str) -> None:
        """Of the CPUs, all pods have these."""
        name = "cpuset.effective_cpus" if self.version == 1 else "cpuset.cpus.effective"
        (self.cpuset / "kubepods" / name).write_text(f"{cpus}\n")

    def lose_quota(self) -> None:
        self.quota_file.unlink()

    def lose_cpuset(self) -> None:
        for file in self.cpus_file.parent.glob("cpuset*"):
            file.unlink()

    def lose_group(self) -> None:
        self.quota_file.parent.rename(self.cpu / "kubepods/gone")

    def read(self) -> None:
        self.missing = [one.what for one in self.kernel.read(1).missing if "besteffort" in one.what]

    def short(self, error: CgroupError) -> str:
        return str(error).replace(f"{self.folder}/", "")

    def state(self) -> dict[str, object]:
        try:
            limits: object = self.kernel.limits()
        except CgroupError as error:
            limits = self.short(error)
        changed = {name: text for name, text in self.texts().items() if self.before.get(name) != text}
        return {
            "changed files": dict(sorted(changed.items())),
            "limits": limits,
            "refused": self.error,
            "missing": self.missing,
            "old": self.quota_file.exists() and self.quota_file.stat().st_mtime_ns == 0,
        }


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def node(request, tmp_path) -> Held:
    return Held(tmp_path, request.param)


@each_story("cgroup_hold")
def test_what_is_held(node, given, steps, snapshot) -> None:
    assert story(node, steps) == snapshot


@each_row("group", "file")
def test_nothing_outside_the_best_effort_group_is_ever_opened_for_writing(node, group, file) -> None:
    for root in {node.cpu, node.cpuset}:
        (root / "kubepods/besteffort/link").symlink_to(root / "kubepods/burstable")
    before = node.texts()

    for knobs, own in ((node.kernel._holder._knobs, node.quota_file), (node.kernel._cpuset._knobs, node.cpus_file)):
        with pytest.raises(CgroupError, match="never written"):
            knobs.write(Write(PurePosixPath(group), file or own.name, "1000"))
    assert node.texts() == before


def test_a_refused_write_names_its_path(node) -> None:
    node.link("quota")

    with pytest.raises(CgroupError) as refused:
        node.kernel.hold(Limits(be_cfs_quota_us=20_000))
    assert refused.value.path == str(node.quota_file)


def test_what_groups_held_is_remembered_over_a_restart(tmp_path) -> None:
    Originals(tmp_path).keep(CLIPPED)

    assert Originals(tmp_path).clipped == CLIPPED


def test_a_damaged_memory_is_set_aside_and_said_once(node, tmp_path) -> None:
    (tmp_path / FILE).write_text('{"pod1": {"own": 7')
    kernel = CgroupKernel(node.mount, tmp_path, None, tmp_path)
    first, second = kernel.read(1), kernel.read(2)

    said = [missing.why for missing in first.missing if missing.what == str(tmp_path / FILE)]
    assert len(said) == 1
    assert said[0].startswith(f"malformed, renamed to {FILE}.bad")
    assert not any(missing.what == str(tmp_path / FILE) for missing in second.missing)
    assert (tmp_path / f"{FILE}.bad").exists()


def test_what_cannot_be_remembered_is_an_error(tmp_path) -> None:
    originals = Originals(tmp_path / "not there")

    with pytest.raises(CgroupError, match="cannot store the limits to restore: No such file"):
        originals.keep(CLIPPED)
    assert originals.clipped == {}


def test_processors_are_those_online_that_pods_may_run_on(node, tmp_path) -> None:
    folder = tmp_path / "sys/devices/system/cpu"
    for cpu in range(6):
        (folder / f"cpu{cpu}/topology").mkdir(parents=True)
        (folder / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{cpu % 3},{cpu % 3 + 3}\n")
        (folder / f"cpu{cpu}/topology/physical_package_id").write_text("-1\n" if cpu == 1 else "1\n")
        (folder / f"cpu{cpu}/node{cpu % 2}").mkdir()
    (folder / "online").write_text("0-2,4-5\n")
    (folder / "cpu2/topology/thread_siblings_list").unlink()

    assert node.kernel.processors() == [
        Processor(cpu=0, core=0, socket=1, numa_node=0),
        Processor(cpu=1, core=1, socket=0, numa_node=1),
    ]
    assert processors(tmp_path / "nothing", range(6)) == []
