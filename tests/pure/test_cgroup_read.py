"""What the agent reads of a node: files as kernels write them, files that are not there, and files that are wrong."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.read import PodsReader
from slacktide.agents.node.interfaces import Reading
from slacktide.deploy.virtual.files import Projection
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.sample import Limits, Missing, PodUse
from testbed.plain_node import LS_UID, MIB, PROC, UID, V1_GROUP, V1_POD, V2_GROUP, V2_POD, Node
from testbed.stories import each_story, story

SECOND_NS = 1_000_000_000


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def plain(request, tmp_path):
    """Either version, named as cgroupfs does."""
    return Node(tmp_path, request.param, "cgroupfs")


def said(reading: Reading) -> dict[str, str]:
    return {missing.what: missing.why for missing in reading.missing}


def pods_of(reading: Reading) -> dict:
    return {pod.uid: pod for pod in reading.pod_use}


class Read:
    """A node whose files change, and what is read of it; the pod is the best-effort one."""

    def __init__(self, node: Node) -> None:
        self.node, self.kernel = node, node.kernel()
        self.reading: Reading | None = None
        self.readings: list[tuple] = []

    def read(self, second: int) -> None:
        self.reading = self.kernel.read(second * SECOND_NS)

    def reads(self, first: int, last: int) -> None:
        """Once a second: the pod's figures and how much is missing, of each."""
        self.readings = []
        for second in range(first, last + 1):
            self.read(second)
            self.readings.append((*shown(pods_of(self.reading)[UID]), len(self.reading.missing)))

    def node_works(self) -> None:
        self.edit(self.node.proc / "stat", "cpu  1000", "cpu  1150")

    def node_waits(self) -> None:
        """For disks, and for time that its host takes."""
        self.edit(self.node.proc / "stat", "90000 5000 6 7 800", "95000 9000 6 7 900")

    def pod_works(self) -> None:
        for name in self.files("cpuacct.usage", "cpu.stat"):
            if name.endswith("cpu.stat"):
                self.edit(self.node.mount / name, "nr_periods 10\nnr_throttled 2", "nr_periods 20\nnr_throttled 9")
            if name.endswith("usage") or self.node.version == 2:
                self.edit(self.node.mount / name, "5000000", "5250000")

    def pod_counts_anew(self) -> None:
        self.edit(self.node.mount / self.files("cpuacct.usage", "/cpu.stat")[0], "5000000", "4")

    def cache(self, mib: int) -> None:
        for name in self.files("memory.stat"):
            text = f"inactive_file {mib * MIB}\ntotal_inactive_file {mib * MIB}\n"
            self.node.write(self.node.mount / name, text)

    def tear_memory(self) -> None:
        for name in self.files("memory.stat"):
            self.node.write(self.node.mount / name, "?\n")

    def meminfo(self, kib: int = 0) -> None:
        """Another file with so much that is available, or an empty one."""
        self.node.write(self.node.proc / "new", PROC["meminfo"].replace("6291456", str(kib)) if kib else "")
        (self.node.proc / "new").replace(self.node.proc / "meminfo")

    def overwrite_meminfo(self, *text: str) -> None:
        self.node.write(self.node.proc / "meminfo", PROC["meminfo"] if text else "")

    def come(self, tier: str, uid: str) -> None:
        self.node.add_pod(tier, uid)

    def go(self) -> None:
        self.node.remove_pod("besteffort", UID)

    def lose_tier(self) -> None:
        root = self.node.mount / "cpu" if self.node.version == 1 else self.node.mount
        shutil.rmtree(root / self.node.tier("burstable"))

    def files(self, *ends: str) -> list[str]:
        return [name for name in self.node.pod_files("besteffort", UID) if name.endswith(ends)]

    @staticmethod
    def edit(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def state(self) -> dict[str, object]:
        if self.reading is None:
            return {}
        now, pressure = self.reading.use, self.reading.use.pressure
        return {
            "interval, CPU, memory": (self.reading.interval_ms, now.cpu_milli, now.mem_bytes and now.mem_bytes // MIB),
            "CPU some, memory some and full": (pressure.cpu_some_pct, pressure.mem_some_pct, pressure.mem_full_pct),
            "IO some and full": (pressure.io_some_pct, pressure.io_full_pct),
            "pods: best-effort, CPU, memory, periods": [
                (uid, one.best_effort_group, *shown(one)) for uid, one in sorted(pods_of(self.reading).items())
            ],
            "limits": self.reading.limits,
            "missing": [f"{one.what.removeprefix(f'{self.node.folder}/')}: {one.why}" for one in self.reading.missing],
            "CPU, memory, periods and how much is missing, at each": self.readings,
        }


def shown(use: PodUse) -> tuple:
    return (use.cpu_milli, use.mem_bytes and use.mem_bytes // MIB, use.throttled_periods, use.periods)


@pytest.mark.parametrize("naming", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
@each_story("cgroup_read")
def test_what_is_read_of_a_node(version: int, naming: str, given: dict, steps: str, tmp_path: Path, snapshot) -> None:
    assert story(Read(Node(tmp_path, version, naming)), steps) == snapshot


def test_a_pod_that_vanishes_while_it_is_read_is_dropped_and_said(plain, monkeypatch) -> None:
    look = PodsReader._look

    def look_and_lose(self, notes):
        look(self, notes)
        plain.remove_pod("besteffort", UID)

    monkeypatch.setattr(PodsReader, "_look", look_and_lose)
    reading = plain.kernel().read(SECOND_NS)

    assert pods_of(reading).keys() == {LS_UID}
    assert said(reading)[f"pod {UID}"] == "deleted while it was read"


FILES = {
    version: [f"proc/{name}" for name in PROC]
    + [f"cgroup/{name}".format(pod=f"kubepods/besteffort/pod{UID}") for name in pod]
    + [f"cgroup/{name}".format(group="kubepods/besteffort") for name in group]
    for version, pod, group in [(1, V1_POD, V1_GROUP), (2, V2_POD, V2_GROUP)]
}
EACH_FILE = pytest.mark.parametrize(
    ("version", "file"),
    [pytest.param(version, file, id=f"v{version} {file}") for version in FILES for file in FILES[version]],
)


def count_unknown(reading: Reading) -> int:
    pod = pods_of(reading)[UID]
    pressure = reading.use.pressure
    figures = [reading.use.cpu_milli, reading.use.mem_bytes, pod.cpu_milli, pod.mem_bytes, pod.periods, reading.limits]
    figures += [pressure.cpu_some_pct, pressure.mem_some_pct, pressure.mem_full_pct]
    return sum(figure is None for figure in [*figures, pressure.io_some_pct, pressure.io_full_pct])


@EACH_FILE
def test_a_file_that_is_missing_is_named_and_all_else_is_read(version, file, tmp_path) -> None:
    node = Node(tmp_path, version, "cgroupfs")
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    (tmp_path / file).unlink()
    reading = kernel.read(3 * SECOND_NS)

    assert [missing.what.removeprefix(f"{tmp_path}/") for missing in reading.missing] == [file.removeprefix("cgroup/")]
    assert "ENOENT" in reading.missing[0].why or "cpu controller is not enabled" in reading.missing[0].why
    assert 1 <= count_unknown(reading) <= 2


@EACH_FILE
@pytest.mark.parametrize(
    "text", [b"", b"\n", b"garbage\n", b"-5\n", b"\xff\xfe\x00\n", b"1.5 x\n", b"some\nfull\n", b"9" * 30]
)
def test_a_malformed_file_is_named_and_all_else_is_read(version, file, text, tmp_path) -> None:
    node = Node(tmp_path, version, "cgroupfs")
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    (tmp_path / file).write_bytes(text)
    reading = kernel.read(3 * SECOND_NS)

    assert {missing.what.removeprefix(f"{tmp_path}/") for missing in reading.missing} == {file.removeprefix("cgroup/")}
    assert all(missing.why.startswith("malformed: ") for missing in reading.missing)
    assert 1 <= count_unknown(reading) <= 2


@EACH_FILE
def test_whatever_a_file_says_nothing_raises_and_no_figure_is_negative(version, file, tmp_path) -> None:
    node = Node(tmp_path, version, "cgroupfs")
    good = (tmp_path / file).read_bytes()
    kernel = node.kernel()

    @given(text=st.one_of(st.binary(max_size=60), st.text("0123456789 \n-.maxnr_peiodsug=").map(str.encode)))
    def check(text: bytes) -> None:
        (tmp_path / file).write_bytes(good)
        kernel.read(SECOND_NS)
        (tmp_path / file).write_bytes(text)
        reading = kernel.read(3 * SECOND_NS)

        figures = [reading.use.cpu_milli, reading.use.mem_bytes, *(pod.mem_bytes for pod in reading.pod_use)]
        figures += [pod.cpu_milli for pod in reading.pod_use]
        assert all(figure is None or figure >= 0 for figure in figures)

    check()


@pytest.mark.parametrize("controller", ["cpuacct", "memory"])
def test_a_controller_that_is_not_mounted_is_said_once(controller, tmp_path) -> None:
    node = Node(tmp_path, 1, "cgroupfs")
    shutil.rmtree(node.mount / controller)
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    reading = kernel.read(2 * SECOND_NS)

    assert said(reading) == {controller: f"the controller is not mounted under {node.mount}"}
    assert (pods_of(reading)[UID].cpu_milli is None) == (controller == "cpuacct")
    assert (pods_of(reading)[UID].mem_bytes is None) == (controller == "memory")


def test_without_the_memory_controller_of_v2_memory_alone_is_unknown(tmp_path) -> None:
    node = Node(tmp_path, 2, "cgroupfs")
    for name in ("memory.current", "memory.stat"):
        (node.mount / "kubepods/besteffort" / f"pod{UID}" / name).unlink()
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    use = pods_of(kernel.read(2 * SECOND_NS))[UID]

    assert (use.mem_bytes, use.cpu_milli) == (None, 0)


def test_what_is_missing_is_bounded(plain) -> None:
    for number in range(40):
        plain.add_pod("burstable", f"p{number}")
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    root = plain.mount / "memory" if plain.version == 1 else plain.mount
    for path in root.rglob("memory.stat"):
        path.write_text("?\n")
    reading = kernel.read(3 * SECOND_NS)

    assert len(reading.missing) == 21
    assert reading.missing[-1] == Missing(what="and 22 more", why="only the first 20 are listed")


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_a_virtual_machine_is_read_and_held_like_a_real_one(version, tmp_path) -> None:
    machine = Machine(cpus=4, mem_bytes=8 << 30, version=version)
    machine.add_pod("one", "BestEffort").demand_milli = 4000
    shown = Projection(machine, tmp_path / "node")
    kernel = CgroupKernel(shown.cgroup_mount, shown.proc_mount, None, tmp_path)
    kernel.read(0)
    kernel.hold(Limits(be_cfs_quota_us=50_000))
    refused = shown.read_back()
    machine.step(1000)
    shown.write_files()
    reading = kernel.read(SECOND_NS)

    assert refused == []
    assert reading.missing == []
    assert pods_of(reading)["one"].cpu_milli == pytest.approx(500, abs=5)
    assert reading.limits == Limits(be_cfs_quota_us=50_000, be_cpuset=[0, 1, 2, 3])
