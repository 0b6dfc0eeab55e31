"""What the agent reads of a node: files as kernels write them, files that are not there, and files that are wrong."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.read import PodsReader
from slacktide.agents.node.kernel import Reading
from slacktide.deploy.virtual.files import Projection
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.sample import Limits, Missing
from testbed.plain_node import LS_UID, MIB, PROC, UID, V1_GROUP, V1_POD, V2_GROUP, V2_POD, Node

SECOND_NS = 1_000_000_000


@pytest.fixture(
    params=[(1, "cgroupfs"), (1, "systemd"), (2, "cgroupfs"), (2, "systemd")], ids=lambda p: f"v{p[0]}-{p[1]}"
)
def node(request, tmp_path):
    return Node(tmp_path, *request.param)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def plain(request, tmp_path):
    """Either version, named as cgroupfs does."""
    return Node(tmp_path, request.param, "cgroupfs")


def said(reading: Reading) -> dict[str, str]:
    return {missing.what: missing.why for missing in reading.missing}


def pods_of(reading: Reading) -> dict:
    return {pod.uid: pod for pod in reading.pod_use}


def add(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_first_reading_has_levels_but_no_rates(node) -> None:
    reading = node.kernel().read(SECOND_NS)

    assert reading.interval_ms == 0
    assert reading.use.cpu_milli is None
    assert reading.use.mem_bytes == 2048 * MIB
    assert pods_of(reading)[UID].mem_bytes == 70 * MIB
    assert reading.limits == Limits(be_cfs_quota_us=None)
    assert reading.missing == [Missing(what="rates", why="no previous reading")]


def test_the_second_reading_has_rates(node) -> None:
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    add(node.proc / "stat", "cpu  1000", "cpu  1150")
    files = node.pod_files("besteffort", UID)
    for name in files:
        if name.endswith("cpuacct.usage"):
            add(node.mount / name, "5000000000", "5250000000")
        if name.endswith("cpu.stat"):
            add(node.mount / name, "nr_periods 10\nnr_throttled 2", "nr_periods 20\nnr_throttled 9")
        if name.endswith("cpu.stat") and node.version == 2:
            add(node.mount / name, "usage_usec 5000000", "usage_usec 5250000")
    reading = kernel.read(2 * SECOND_NS)

    assert (reading.interval_ms, reading.use.cpu_milli) == (1000, 1500)
    use = pods_of(reading)[UID]
    assert (use.cpu_milli, use.periods, use.throttled_periods) == (250, 10, 7)
    assert reading.missing == []


def test_pods_are_told_by_their_uid_and_their_group(node) -> None:
    reading = node.kernel().read(SECOND_NS)

    assert {pod.uid: pod.best_effort_group for pod in reading.pod_use} == {UID: True, LS_UID: False}


def test_pressure_is_the_average_of_ten_seconds(plain) -> None:
    pressure = plain.kernel().read(SECOND_NS).use.pressure

    assert (pressure.cpu_some_pct, pressure.mem_some_pct, pressure.mem_full_pct) == (1.5, 2.5, 0.25)
    assert (pressure.io_some_pct, pressure.io_full_pct) == (30.0, 20.75)


def test_waiting_for_disks_and_stolen_time_are_not_use(plain) -> None:
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    add(plain.proc / "stat", "90000 5000 6 7 800", "95000 9000 6 7 900")

    assert kernel.read(2 * SECOND_NS).use.cpu_milli == 0


def test_more_droppable_cache_than_use_is_a_working_set_of_nothing(plain) -> None:
    """The kernel counts both at different moments."""
    name = next(name for name in plain.pod_files("besteffort", UID) if name.endswith("memory.stat"))
    add(plain.mount / name, str(30 * MIB), str(300 * MIB))

    assert pods_of(plain.kernel().read(SECOND_NS))[UID].mem_bytes == 0


def test_pods_that_come_are_noticed_and_those_that_go_are_dropped(node) -> None:
    kernel = node.kernel()
    kernel.read(SECOND_NS)
    node.add_pod("burstable", "new-1")
    node.remove_pod("besteffort", UID)
    second, third = kernel.read(2 * SECOND_NS), kernel.read(3 * SECOND_NS)

    assert pods_of(second).keys() == {LS_UID, "new-1"}
    assert said(second) == {"pod new-1": "no previous reading"}
    assert pods_of(third)["new-1"].cpu_milli == 0
    assert third.missing == []


def test_a_pod_that_vanishes_while_it_is_read_is_dropped_and_said(plain, monkeypatch) -> None:
    look = PodsReader._look

    def look_and_lose(self, notes):
        look(self, notes)
        plain.remove_pod("besteffort", UID)

    monkeypatch.setattr(PodsReader, "_look", look_and_lose)
    reading = plain.kernel().read(SECOND_NS)

    assert pods_of(reading).keys() == {LS_UID}
    assert said(reading)[f"pod {UID}"] == "deleted while it was read"


def test_a_counter_that_began_anew_is_said(plain) -> None:
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    name = next(name for name in plain.pod_files("besteffort", UID) if name.endswith(("cpuacct.usage", "/cpu.stat")))
    add(plain.mount / name, "5000000", "4")
    reading = kernel.read(2 * SECOND_NS)

    assert pods_of(reading)[UID].cpu_milli is None
    assert said(reading) == {f"pod {UID} cpu": "counter reset"}


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

    @settings(max_examples=30, deadline=None)
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


def test_a_file_that_comes_right_is_read_again(plain) -> None:
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    plain.write(plain.proc / "meminfo", "")
    assert kernel.read(2 * SECOND_NS).use.mem_bytes is None
    plain.write(plain.proc / "meminfo", PROC["meminfo"])

    assert kernel.read(3 * SECOND_NS).use.mem_bytes == 2048 * MIB


def test_a_pods_memory_is_read_every_other_second(plain) -> None:
    """It moves slowly, and the kernel adds it up anew for each look; the node's own is read each time."""
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    name = next(name for name in plain.pod_files("besteffort", UID) if name.endswith("memory.stat"))
    plain.write(plain.mount / name, "inactive_file 0\ntotal_inactive_file 0\n")
    seen = [pods_of(kernel.read(at * SECOND_NS))[UID].mem_bytes for at in (2, 3)]

    assert seen == [70 * MIB, 100 * MIB]


def still(plain: Node) -> CgroupKernel:
    """A kernel that was read for five seconds, in which no pod used any CPU; then the pod's cache goes."""
    kernel = plain.kernel()
    for second in range(1, 6):
        kernel.read(second * SECOND_NS)
    name = next(name for name in plain.pod_files("besteffort", UID) if name.endswith("memory.stat"))
    plain.write(plain.mount / name, "inactive_file 0\ntotal_inactive_file 0\n")
    return kernel


def test_what_was_read_of_a_still_pod_stands_for_ten_seconds(plain) -> None:
    kernel = still(plain)
    seen = [pods_of(kernel.read(at * SECOND_NS))[UID] for at in range(6, 15)]

    assert [one.mem_bytes for one in seen] == 8 * [70 * MIB] + [100 * MIB]
    assert {(one.cpu_milli, one.periods, one.throttled_periods) for one in seen} == {(0, 0, 0)}


def test_a_still_pod_that_stirs_is_read_whole_at_once(plain) -> None:
    kernel = still(plain)
    for name in plain.pod_files("besteffort", UID):
        if name.endswith("cpu.stat"):
            add(plain.mount / name, "nr_periods 10\nnr_throttled 2", "nr_periods 20\nnr_throttled 9")
        if name.endswith("cpuacct.usage" if plain.version == 1 else "cpu.stat"):
            add(plain.mount / name, "5000000", "5250000")
    use = pods_of(kernel.read(6 * SECOND_NS))[UID]

    assert (use.periods, use.throttled_periods, use.mem_bytes) == (10, 7, 100 * MIB)
    assert use.cpu_milli == 250


def test_what_cannot_be_read_of_a_still_pod_is_tried_and_named_each_time(plain) -> None:
    name = next(name for name in plain.pod_files("besteffort", UID) if name.endswith("memory.stat"))
    kernel = plain.kernel()
    plain.write(plain.mount / name, "?\n")
    readings = [kernel.read(at * SECOND_NS) for at in range(1, 8)]
    plain.add_pod("besteffort", UID)

    assert all(name in said(reading) for reading in readings)
    assert pods_of(kernel.read(8 * SECOND_NS))[UID].mem_bytes == 70 * MIB


def test_a_replaced_plain_file_is_read_anew(plain) -> None:
    kernel = plain.kernel()
    kernel.read(SECOND_NS)
    plain.write(plain.proc / "meminfo.new", PROC["meminfo"].replace("6291456", "7340032"))
    (plain.proc / "meminfo.new").replace(plain.proc / "meminfo")

    assert kernel.read(2 * SECOND_NS).use.mem_bytes == 1024 * MIB


def test_a_tier_that_is_gone_is_named(plain) -> None:
    kernel = plain.kernel()
    root = plain.mount / "cpu" if plain.version == 1 else plain.mount
    shutil.rmtree(root / "kubepods" / "burstable")
    reading = kernel.read(SECOND_NS)

    tier = os.path.relpath(root / "kubepods/burstable", plain.mount)
    assert said(reading)[tier] == "ENOENT (No such file or directory)"


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
