"""``slacktide up --sample``: the stack with a service and batch work of its own, on any machine."""

import os
import pty
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from testbed.one_machine import Up, eventually

pytestmark = pytest.mark.demo

READY_S = 60.0
"""With room for the sample's calibration on a busy machine."""
NOT_ROOT = ("unshare", "--user") if os.geteuid() == 0 else ()
"""No user id is mapped there, so that the process is nobody."""


def folders_left(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"slacktide-demo-{pid}-*"))


@pytest.mark.kernel
def test_as_root_it_runs_in_control_groups_and_leaves_nothing(tmp_path: Path) -> None:
    with Up(tmp_path, "--sample") as up:
        up.wait_logged("sample: node demo with a service and batch work; root, cgroup v[12]", within_s=READY_S)
        up.wait_logged("first applied decision .*: no limit ->", within_s=READY_S)
        batch = [one for one in up.children() if "slacktide.deploy.demo.busy" in " ".join(one.cmdline())]
        assert batch
        assert up.stop()[0] == 0
        assert eventually(lambda: not any(psutil.pid_exists(one.pid) for one in batch))

    assert [str(found) for found in Path("/sys/fs/cgroup").glob("**/slacktide-demo")] == []
    assert folders_left(up.process.pid) == []


@pytest.mark.kernel
def test_batch_work_that_was_evicted_starts_again(tmp_path: Path) -> None:
    with Up(tmp_path, "--sample") as up:
        up.wait_logged("ready in", within_s=READY_S)
        one = next(one for one in up.children() if "slacktide.deploy.demo.busy" in " ".join(one.cmdline()))
        one.kill()
        up.wait_logged(r"sample: a batch process \(pid \d+\) ended .*; starting the batch work again")
        assert up.stop()[0] == 0


def test_without_root_it_runs_on_a_virtual_node(tmp_path: Path) -> None:
    with Up(tmp_path, "--sample", through=NOT_ROOT) as up:
        up.wait_logged(
            "sample: node virtual-1 with a service and batch work; not root: 1 virtual node", within_s=READY_S
        )
        up.wait_logged("first applied decision .*: no limit ->", within_s=READY_S)
        assert up.stop()[0] == 0

    assert folders_left(up.process.pid) == []


@contextmanager
def terminal(typed: bytes) -> Iterator[int]:
    """Where somebody types."""
    keyboard, screen = pty.openpty()
    os.write(keyboard, typed)
    try:
        yield screen
    finally:
        os.close(keyboard)
        os.close(screen)


def without_pods(folder: Path) -> tuple[str, str]:
    """A cgroup hierarchy in which no group holds pods."""
    (folder / "cgroup").mkdir()
    (folder / "cgroup/cgroup.controllers").write_text("cpu memory")
    return "--cgroup-mount", str(folder / "cgroup")


def test_whoever_has_no_pods_is_asked_on_a_terminal_and_gets_the_sample(tmp_path: Path) -> None:
    with (
        terminal(b"\n") as stdin,
        Up(tmp_path, *without_pods(tmp_path), through=NOT_ROOT, stdin=stdin) as up,
    ):
        up.wait_logged("ready in", within_s=READY_S)
        assert up.stop()[0] == 0
    assert "sample: node virtual-1 with a service and batch work" in up.text()
    assert "no cgroup contains pods" in up.text()
    assert "Run a sample service and batch work now? [Y/n]" in up.text()


def test_whoever_declines_the_sample_is_told_what_lacks(tmp_path: Path) -> None:
    with terminal(b"n\n") as stdin, Up(tmp_path, *without_pods(tmp_path), stdin=stdin) as up:
        assert up.process.wait(READY_S) == 1
    assert up.text().count("to try Slacktide without pods: slacktide up --sample") == 2, (
        "in the question and as an error"
    )


def test_the_sample_and_an_inventory_contradict_each_other() -> None:
    refused = CliRunner().invoke(cli, ["up", "--sample", "--kubepods", "kubepods"])

    assert refused.exit_code == 2
    assert "--sample and --kubepods exclude each other: the sample has its own node and pods" in " ".join(
        refused.output.split()
    )
