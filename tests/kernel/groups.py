"""A node's groups as a kubelet makes them, in a real kernel, under a group of the tests' own, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from slacktide.agents.node.cgroup.hierarchy import find
from testbed.reaching import needs
from testbed.rungs import machine_cannot

V1 = pytest.param(1, marks=pytest.mark.kernel, id="v1")
V2 = pytest.param(2, marks=pytest.mark.uml, id="v2")
V2_WHOLE = pytest.param(2, marks=pytest.mark.qemu, id="v2-qemu")
"""A whole kernel in QEMU: four CPUs in two NUMA zones, cpuset and PSI, and ten times slower."""

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "memory", "cpuset", "io")
"""What a kubelet hands on, where the kernel has it."""
NAME = "slacktide-test-"
CONTAINER = "c1"
LASTS_S = 300
"""As long as a test may take: then what it started ends by itself, should nobody be left to end it."""
BUSY = f"import time\nend = time.monotonic() + {LASTS_S}\nwhile time.monotonic() < end: pass"


def on(*kernels: object) -> pytest.MarkDecorator:
    """The fixture ``groups`` on these kernels in turn, instead of on `V1` and `V2`."""
    return pytest.mark.parametrize("groups", kernels, indirect=True)


class Throttling(NamedTuple):
    """The kernel's own counters, which count no time in which others have the machine."""

    periods: int
    throttled: int


@needs("kernel", "uml", "qemu")
class Groups:
    """``kubepods`` with its tiers; relative paths begin below it."""

    def __init__(self, version: int) -> None:
        _remove_leftovers(version)
        self.version = version
        self.kubepods = f"{NAME}{os.getpid()}/kubepods"
        self.roots = _roots(version)
        self.cpu = self.roots[0] / self.kubepods
        self.cpuset_root = MOUNT / "cpuset" if version == 1 else MOUNT
        self._processes: list[subprocess.Popen] = []
        for group in ("besteffort", "burstable"):
            self.make(group)

    def make(self, group: str, *, enabled: bool = True) -> None:
        """Make a group and all above it, with controllers handed on to it (v2)."""
        for root in self.roots:
            above = root
            for part in (*self.kubepods.split("/"), *group.split("/")):
                if self.version == 2 and enabled:
                    here = (above / "cgroup.controllers").read_text().split()
                    control = " ".join(f"+{name}" for name in CONTROLLERS if name in here)
                    (above / "cgroup.subtree_control").write_text(control)
                above /= part
                above.mkdir(exist_ok=True)

    def outweigh(self) -> None:
        """Take the machine from all else that runs on it, which starves: only for a test that is alone."""
        self.weigh("262144" if self.version == 1 else "10000")

    def weigh(self, weight: str) -> None:
        """Against all else that runs on the machine."""
        (self.cpu.parent / ("cpu.shares" if self.version == 1 else "cpu.weight")).write_text(weight)

    def add_pod(self, tier: str, uid: str) -> str:
        """A pod with one container; returns its group."""
        self.make(f"{tier}/pod{uid}/{CONTAINER}")
        return f"{tier}/pod{uid}"

    def remove(self, group: str) -> None:
        """Remove a group and those below it."""
        for root in self.roots:
            _remove(root / self.kubepods / group)

    def start(self, pod: str, program: str = BUSY) -> subprocess.Popen:
        """A Python process in the pod's container; it goes on when it is in it."""
        program = f"import sys; sys.stdin.readline()\n{program}"
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        for root in self.roots:
            (root / self.kubepods / pod / CONTAINER / "cgroup.procs").write_text(str(process.pid))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return process

    def quota(self, group: str, text: str | None = None) -> str:
        """The group's quota as the kernel says it, after writing one."""
        file = self.cpu / group / ("cpu.cfs_quota_us" if self.version == 1 else "cpu.max")
        if text is not None:
            file.write_text(text)
        return file.read_text().strip()

    def throttling(self, group: str) -> Throttling:
        """What the kernel has counted by now."""
        text = (self.cpu / group / "cpu.stat").read_text()
        told = {name: int(count) for name, count in (line.split() for line in text.splitlines())}
        return Throttling(told["nr_periods"], told["nr_throttled"])

    def freezer(self, group: str) -> Path:
        """The file that freezes a group."""
        if self.version == 1:
            return MOUNT / "freezer" / self.kubepods / group / "freezer.state"
        return MOUNT / self.kubepods / group / "cgroup.freeze"

    def cpuset(self, group: str, text: str | None = None) -> str:
        """The group's CPUs as the kernel says them, after writing some."""
        file = self.cpuset_root / self.kubepods / group / "cpuset.cpus"
        if text is not None:
            file.write_text(text)
        return file.read_text().strip()

    def bind(self, *groups: str) -> None:
        """Make these groups with cpuset: on v1 in its own hierarchy, each with what is above, as runtimes do."""
        for group in ("", *groups):
            if self.version == 2:
                self.make(group)
                continue
            above = self.cpuset_root
            for part in (*self.kubepods.split("/"), *filter(None, group.split("/"))):
                made = above / part
                if not made.is_dir():
                    made.mkdir()
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (made / file).write_text((above / file).read_text())
                above = made

    def close(self) -> None:
        """End the processes, whoever has started them and stopped them, and remove all groups."""
        for folder, _, _ in os.walk(self.freezer("").parent):
            with contextlib.suppress(FileNotFoundError):
                self.freezer(folder).write_text("THAWED" if self.version == 1 else "0")
        for folder, _, _ in os.walk(self.cpu):
            for pid in Path(folder, "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        for root in {*self.roots, self.cpuset_root}:
            _remove((root / self.kubepods).parent)


def unified_of(groups: Groups) -> Path:
    """Where the kernel tells of groups' pressure: on v1 the hierarchy beside it."""
    root = find(MOUNT, groups.kubepods).unified
    if root is None:
        machine_cannot("cgroup v2 beside v1")
    if groups.version == 1:
        groups.roots.append(root)  # made, filled and removed as the others
        groups.make("burstable")
    return root


def used_ticks(process: subprocess.Popen) -> int:
    """CPU time of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _roots(version: int) -> list[Path]:
    return [MOUNT / controller for controller in ("cpu", "cpuacct", "memory", "freezer")] if version == 1 else [MOUNT]


def _remove(group: Path) -> None:
    for folder in sorted((Path(folder) for folder, _, _ in os.walk(group)), reverse=True):
        for attempt in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                if attempt == 49:
                    raise
                time.sleep(0.02)  # a process that has just ended may still be counted


def _remove_leftovers(version: int) -> None:
    """Of a run that was killed: its process is gone, its groups are empty."""
    for root in (*_roots(version), MOUNT / "cpuset"):
        for group in root.glob(f"{NAME}*"):
            if not Path("/proc", group.name.removeprefix(NAME)).exists():
                with contextlib.suppress(OSError):
                    _remove(group)
