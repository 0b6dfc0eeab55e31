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
            (self._root / pod / CONTAINER).mkdir(parents=True)
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
    for folder in sorted((Path(folder) for folder, _, _ in os.walk(group)), reverse=True):
        assert eventually(lambda folder=folder: not contextlib.suppress(OSError) or removed(folder), 2)


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


def used_ns(process) -> int:
    """CPU time of a process, in units that only grow."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
