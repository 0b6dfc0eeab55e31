"""Binding to CPUs through files: what is written, what is never written, and what is said when it fails."""

import os
from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.kernel import processors
from slacktide.agents.node.cgroup.plan import Write
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Processor
from slacktide.schemas.sample import Limits

GROUPS = ("", "burstable", "burstable/pod1", "besteffort", "besteffort/pod2", "besteffort/pod2/c1")


def bound(*cpus: int, quota_us: int | None = None) -> Limits:
    return Limits(be_cfs_quota_us=quota_us, be_cpuset=list(cpus))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture
def cpuset(tmp_path, version):
    """The root of the cpuset controller; every group has CPUs 0 to 3, on v2 without saying so."""
    mount = tmp_path / "cgroup"
    for group in GROUPS:
        for controller in ("cpu", "cpuset") if version == 1 else ("",):
            (mount / controller / "kubepods" / group).mkdir(parents=True, exist_ok=True)
        cpu, root = (mount / "cpu", mount / "cpuset") if version == 1 else (mount, mount)
        if version == 1:
            (cpu / "kubepods" / group / "cpu.cfs_quota_us").write_text("-1\n")
            (cpu / "kubepods" / group / "cpu.cfs_period_us").write_text("100000\n")
        else:
            (cpu / "kubepods" / group / "cpu.max").write_text("max 100000\n")
        (root / "kubepods" / group / "cpuset.cpus").write_text("0-3\n" if version == 1 else "\n")
        effective = "cpuset.effective_cpus" if version == 1 else "cpuset.cpus.effective"
        (root / "kubepods" / group / effective).write_text("0-3\n")
    if version == 2:
        (mount / "cgroup.controllers").write_text("cpuset cpu memory\n")
    return root


@pytest.fixture
def kernel(cpuset, tmp_path):
    return CgroupKernel(tmp_path / "cgroup", tmp_path / "proc", None, tmp_path)


def texts(folder: Path) -> dict[str, str]:
    return {os.path.relpath(path, folder): path.read_text().strip() for path in folder.rglob("cpuset.cpus")}


def test_the_best_effort_group_is_bound_and_on_v1_all_below_it(kernel, cpuset, version) -> None:
    before = texts(cpuset)
    kernel.hold(bound(0, 2))
    below = ["besteffort/pod2", "besteffort/pod2/c1"] if version == 1 else []

    changed = {name for name, text in texts(cpuset).items() if text != before[name]}
    assert changed == {f"kubepods/{group}/cpuset.cpus" for group in ["besteffort", *below]}
    assert {texts(cpuset)[name] for name in changed} == {"0,2"}
    assert kernel.limits() == bound(0, 2)


def test_what_nobody_wrote_is_what_the_group_above_has(kernel) -> None:
    assert kernel.limits() == bound(0, 1, 2, 3)


@pytest.mark.parametrize("version", [2], indirect=True)
def test_on_v2_only_what_the_pods_group_has_is_held(kernel, cpuset) -> None:
    """On v1 the kernel sees to it; on v2 it takes any text, and gives all of the group above if nothing is left."""
    kernel.hold(bound(1, 2))
    (cpuset / "kubepods/cpuset.cpus.effective").write_text("0,2\n")
    some_left = kernel.limits()
    (cpuset / "kubepods/cpuset.cpus.effective").write_text("0,3\n")

    assert some_left == bound(2)
    assert kernel.limits() == bound(0, 3)


def test_quota_and_cpu_set_hold_together(kernel) -> None:
    kernel.hold(bound(1, quota_us=20_000))

    assert kernel.limits() == bound(1, quota_us=20_000)


def test_the_knob_that_takes_over_cuts_before_the_other_is_lifted(kernel, cpuset) -> None:
    """Stopped between both writes, best-effort pods have less, not more."""
    kernel.hold(bound(0, 1, 2, 3, quota_us=20_000))
    file = cpuset / "kubepods/besteffort/cpuset.cpus"
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")  # read through, but never written through
    with pytest.raises(CgroupError, match="ELOOP"):
        kernel.hold(bound(0))

    assert kernel.limits().be_cfs_quota_us == 20_000


def test_without_the_controllers_files_the_set_is_unknown_and_the_quota_holds(kernel, cpuset) -> None:
    for file in (cpuset / "kubepods/besteffort").glob("cpuset*"):
        file.unlink()
    kernel.hold(Limits(be_cfs_quota_us=20_000))

    assert kernel.limits() == Limits(be_cfs_quota_us=20_000)


def test_a_malformed_set_is_an_error_with_its_path(kernel, cpuset) -> None:
    (cpuset / "kubepods/besteffort/cpuset.cpus").write_text("many\n")

    with pytest.raises(CgroupError, match=r"besteffort/cpuset\.cpus: malformed: .* is not a list of CPUs"):
        kernel.limits()


@pytest.mark.parametrize("group", ["..", "../burstable", "/etc"])
def test_nothing_outside_the_best_effort_group_is_ever_bound(kernel, cpuset, group) -> None:
    before = texts(cpuset)

    with pytest.raises(CgroupError, match="never written"):
        kernel._cpuset._knobs.write(Write(PurePosixPath(group), "cpuset.cpus", "0"))
    assert texts(cpuset) == before


def test_processors_are_those_online_that_pods_may_run_on(kernel, tmp_path) -> None:
    folder = tmp_path / "sys/devices/system/cpu"
    for cpu in range(6):
        (folder / f"cpu{cpu}/topology").mkdir(parents=True)
        (folder / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{cpu % 3},{cpu % 3 + 3}\n")
        (folder / f"cpu{cpu}/topology/physical_package_id").write_text("-1\n" if cpu == 1 else "1\n")
        (folder / f"cpu{cpu}/node{cpu % 2}").mkdir()
    (folder / "online").write_text("0-2,4-5\n")
    (folder / "cpu2/topology/thread_siblings_list").unlink()

    assert kernel.processors() == [
        Processor(cpu=0, core=0, socket=1, numa_node=0),
        Processor(cpu=1, core=1, socket=0, numa_node=1),
    ]
    assert processors(tmp_path / "nothing", range(6)) == []
