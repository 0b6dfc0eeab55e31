"""Real processes of best-effort pods: asked to end, killed, stopped, and nobody else ever."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.groups import BUSY, CONTAINER, MOUNT, Groups
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.best_effort import CgroupBestEffort
from slacktide.schemas.errors import CgroupError
from testbed.one_machine import eventually

UID = "6a0e-11aa"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\n{BUSY}"
BREEDING = """import os, time
signal = __import__("signal")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
"""Each moment another process: who reads its pid finds it gone."""


class Freezable:
    """The groups of a node, its pods also in the freezer hierarchy of v1."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._root = MOUNT / "freezer" / groups.kubepods if groups.version == 1 else None

    def pod(self, tier: str = "besteffort", uid: str = UID) -> str:
        pod = self.groups.add_pod(tier, uid)
        if self._root is not None:
            (self._root / pod / CONTAINER).mkdir(parents=True, exist_ok=True)
        return pod

    def start(self, pod: str, program: str = BUSY, *, ready: bool = False):
        """A process in the pod; ``ready``: the program prints a line when it is."""
        process = self.groups.start(pod, f"import sys; sys.stdin.readline()\n{program}")
        if self._root is not None:
            (self._root / pod / CONTAINER / "cgroup.procs").write_text(str(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
        if ready:
            process.stdout.readline()
        return process

    def file(self, pod: str) -> Path:
        """Where the pod is frozen."""
        return self.groups.cpu / pod / "cgroup.freeze" if self._root is None else self._root / pod / "freezer.state"

    def close(self) -> None:
        """End whoever is left, and take the freezer's groups down."""
        for folder, _, _ in os.walk(self._root or self.groups.cpu):
            with contextlib.suppress(OSError):
                Path(folder, "freezer.state" if self._root else "cgroup.freeze").write_text(
                    "THAWED" if self._root else "0"
                )
        for folder, _, _ in os.walk(self.groups.cpu):
            for pid in Path(folder, "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self.groups._processes:
            process.wait()
        if self._root is not None:
            remove(self._root.parent)


def remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        assert eventually(lambda gone=Path(folder): removed(gone), 2), f"{folder} is still in use"


def removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def node(groups: Groups) -> Iterator[Freezable]:
    made = Freezable(groups)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pods(node: Freezable, kernel: CgroupKernel) -> CgroupBestEffort:
    return kernel.best_effort


def used_ticks(process) -> int:
    """CPU time of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def stands_still(process) -> bool:
    before = used_ticks(process)
    time.sleep(0.15)
    return used_ticks(process) == before


def test_a_pod_ends_when_it_is_asked_to(node, pods) -> None:
    pod = node.pod()
    processes = [node.start(pod) for _ in range(3)]
    before = pods.processes(UID)
    pods.terminate(UID)

    assert [process.wait(5) for process in processes] == [-signal.SIGTERM] * 3
    assert (before, pods.processes(UID)) == (3, 0)


def test_one_that_does_not_listen_is_killed(node, pods) -> None:
    process = node.start(node.pod(), DEAF, ready=True)
    pods.terminate(UID)
    time.sleep(0.1)
    assert process.poll() is None
    pods.kill(UID)

    assert process.wait(5) == -signal.SIGKILL


def test_one_that_forks_all_the_time_is_killed_with_all_that_it_starts(node, pods) -> None:
    node.start(node.pod(), BREEDING, ready=True)
    time.sleep(0.05)
    assert pods.processes(UID) > 0
    pods.kill(UID)

    assert eventually(lambda: pods.processes(UID) == 0, 2)
    assert pods.frozen() == frozenset()


def test_a_frozen_pod_stands_still_until_it_is_thawed(node, pods) -> None:
    pod = node.pod()
    process = node.start(pod)
    assert not stands_still(process)

    assert pods.freeze(UID)
    assert stands_still(process)
    assert pods.frozen() == {UID}
    pods.thaw(UID)
    assert pods.frozen() == frozenset()
    assert eventually(lambda: not stands_still(process), 2)


def test_a_frozen_pod_can_be_ended(node, pods) -> None:
    listening = node.start(node.pod())
    pods.freeze(UID)
    pods.terminate(UID)
    assert listening.wait(5) == -signal.SIGTERM

    deaf = node.start(node.pod(), DEAF, ready=True)
    pods.freeze(UID)
    pods.kill(UID)
    assert deaf.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("tier", ["burstable", "."], ids=["burstable", "guaranteed"])
def test_nobody_but_best_effort_is_touched(node, pods, tier) -> None:
    process = node.start(node.pod(tier))
    for act in (pods.processes, pods.terminate, pods.kill, pods.freeze, pods.thaw):
        with pytest.raises(CgroupError, match="not a best-effort pod's group: never touched"):
            act(UID)

    assert process.poll() is None
    assert not stands_still(process)


@pytest.mark.parametrize("uid", ["../burstable/pod1", "", ".", "1/../../burstable/pod1"])
def test_a_uid_is_never_part_of_a_path(node, pods, uid) -> None:
    process = node.start(node.pod("burstable", "1"))
    pods.terminate(uid)
    pods.kill(uid)
    with pytest.raises(CgroupError, match="the pod is gone"):
        pods.freeze(uid)

    assert process.poll() is None
    assert not stands_still(process)


def test_the_agent_does_not_end_itself(node, pods) -> None:
    """It may be a best-effort pod like any other."""
    here = node.groups.cpu / node.pod() / CONTAINER / "cgroup.procs"
    root = node.groups.roots[0]
    home = root / own_group(root) / "cgroup.procs"
    here.write_text(str(os.getpid()))
    try:
        for act in (pods.terminate, pods.kill, pods.freeze):
            with pytest.raises(CgroupError, match=f"process {os.getpid()}, this agent"):
                act(UID)
    finally:
        home.write_text(str(os.getpid()))


def own_group(root: Path) -> str:
    """The group of this process in a hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if root.name in controllers.split(",") or not controllers:
            return group.lstrip("/")
    raise AssertionError(f"this process is in no group of {root}")
