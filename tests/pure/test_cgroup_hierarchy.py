"""Where the groups are found, and what is said when they are not."""

from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup.hierarchy import find
from slacktide.schemas.errors import CgroupError
from testbed.vectors import each_row


def make(mount: Path, *folders: str, unified: bool = False) -> Path:
    for folder in folders:
        (mount / folder).mkdir(parents=True)
    if unified:
        (mount / "cgroup.controllers").write_text("cpu memory\n")
    return mount


def test_v1_controllers_each_have_a_mount(tmp_path) -> None:
    found = find(make(tmp_path, "cpu/kubepods", "cpuacct", "memory"), None)

    assert found.version == 1
    assert (found.cpu, found.cpuacct, found.memory) == (tmp_path / "cpu", tmp_path / "cpuacct", tmp_path / "memory")


def test_v1_controllers_may_share_a_mount(tmp_path) -> None:
    found = find(make(tmp_path, "cpu,cpuacct/kubepods", "memory"), None)

    assert found.cpu == found.cpuacct == tmp_path / "cpu,cpuacct"


def test_v2_is_one_mount(tmp_path) -> None:
    found = find(make(tmp_path, "kubepods", unified=True), None)

    assert found.version == 2
    assert found.cpu == found.cpuacct == found.memory == tmp_path


def test_on_a_hybrid_machine_the_v1_controllers_count(tmp_path) -> None:
    make(tmp_path / "unified", "kubepods", unified=True)

    assert find(make(tmp_path, "cpu/kubepods"), None).version == 1


@pytest.mark.parametrize("unified", [False, True], ids=["v1", "v2"])
@each_row("pods", "best_effort")
def test_the_pods_group_is_found(tmp_path, unified, pods, best_effort) -> None:
    root = tmp_path if unified else tmp_path / "cpu"
    make(root, pods)
    found = find(make(tmp_path, unified=unified), None)

    assert found.pods == PurePosixPath(pods)
    assert found.best_effort == root / best_effort


def test_a_nested_group_does_not_hide_the_one_at_the_top(tmp_path) -> None:
    assert find(make(tmp_path, "cpu/kubepods", "cpu/other/kubepods"), None).pods == PurePosixPath("kubepods")


@pytest.mark.parametrize("given", ["deep/down/kubepods", "/deep/down/kubepods/"])
def test_a_given_group_is_taken(tmp_path, given) -> None:
    found = find(make(tmp_path, "cpu/kubepods", "cpu/deep/down/kubepods"), given)

    assert found.pods == PurePosixPath("deep/down/kubepods")


@each_row("folders", "given", "says")
def test_what_is_not_found_is_said_with_what_to_do(tmp_path, folders, given, says) -> None:
    make(tmp_path, *folders)

    with pytest.raises(CgroupError, match=says):
        find(tmp_path, given)
