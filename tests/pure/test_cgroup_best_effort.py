"""Best-effort pods in a folder that only looks like a kernel: nobody is signalled; what cannot be frozen is said."""

import subprocess
import sys
from pathlib import Path

import pytest

from slacktide.agents.node.cgroup.best_effort import CgroupBestEffort
from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.schemas.errors import CgroupError

UID = "6a0e-11aa"


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """A node's groups on cgroup v2, with one best-effort pod."""
    pod = tmp_path / "kubepods/besteffort" / f"pod{UID}" / "c1"
    pod.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    return tmp_path


def pods_of(mount: Path) -> CgroupBestEffort:
    return CgroupBestEffort(find(mount, None))


def test_in_a_plain_folder_nobody_is_signalled(mount: Path) -> None:
    container = mount / "kubepods/besteffort" / f"pod{UID}" / "c1"
    (container / "cgroup.kill").write_text("")
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    (container / "cgroup.procs").write_text(f"{process.pid}\n")
    pods = pods_of(mount)
    for act in (pods.processes, pods.terminate, pods.kill, pods.freeze):
        with pytest.raises(CgroupError, match="a plain folder, not a cgroup"):
            act(UID)
    assert process.stdin is not None
    process.stdin.close()

    assert process.wait(60) == 1, "it ended by itself: nobody answered it"
    assert (container / "cgroup.kill").read_text() == ""


def test_an_empty_pod_and_one_that_is_gone_have_no_processes(mount: Path) -> None:
    assert (pods_of(mount).processes(UID), pods_of(mount).processes("gone")) == (0, 0)


def test_a_link_out_of_the_best_effort_group_is_not_followed(mount: Path) -> None:
    (mount / "kubepods/burstable/pod1").mkdir(parents=True)
    (mount / "kubepods/besteffort/pod1").symlink_to(mount / "kubepods/burstable/pod1")

    with pytest.raises(CgroupError, match="not below the best-effort cgroup"):
        pods_of(mount).kill("1")


def test_why_nothing_can_be_frozen_is_said(mount: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    v1 = tmp_path_factory.mktemp("v1")
    (v1 / "cpu/kubepods/besteffort" / f"pod{UID}").mkdir(parents=True)
    without = pods_of(v1)
    assert without.freeze_trouble == f"the freezer controller is not mounted under {v1}"
    with pytest.raises(CgroupError, match="the freezer controller is not mounted"):
        without.freeze(UID)
    assert without.frozen() == frozenset()

    (v1 / "freezer").mkdir()
    assert pods_of(v1).freeze_trouble.startswith("no best-effort cgroup in the freezer hierarchy")
    assert pods_of(mount).freeze_trouble == "the kernel has no cgroup.freeze: use kernel 5.2 or newer"
