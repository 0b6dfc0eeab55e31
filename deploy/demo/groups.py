"""The demo's cgroups, with the kubelet's layout and weights.

All are below ``<hierarchy>/slacktide-demo``. The demo kills and removes nothing outside of it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.node.cgroup.group_knobs import weight_of
from slacktide.schemas.errors import SlacktideError

OWN = "slacktide-demo"
KUBEPODS = f"{OWN}/kubepods"
"""The cgroup of the pods, relative to each hierarchy."""
CONTAINER = "main"
V1_NEEDED = ("cpu", "cpuacct")
V1_WANTED = (*V1_NEEDED, "memory")
V2_WANTED = ("cpu", "memory")
SHARES_MIN = 2
Tier = Literal["burstable", "besteffort"]


class NoGroupsError(SlacktideError):
    """Cgroups are not available. The text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A pod's cgroup and weight."""

    uid: str
    tier: Tier
    request_milli: int = 0

    @property
    def path(self) -> str:
        """Return the path relative to a hierarchy."""
        return f"{KUBEPODS}/{self.tier}/pod{self.uid}"


def shares_of(request_milli: int) -> int:
    """Compute ``cpu.shares`` of a CPU request, as the kubelet does."""
    return max(SHARES_MIN, request_milli * 1024 // 1000)


def plan(pods: list[PodGroup], capacity_milli: int) -> dict[str, int]:
    """Return the cgroups from the top down, each with its ``cpu.shares``.

    The demo's top cgroup represents the machine: its weight is far above that of other work.
    """
    whole = shares_of(capacity_milli)
    burstable = shares_of(sum(pod.request_milli for pod in pods if pod.tier == "burstable"))
    groups = {OWN: whole, KUBEPODS: whole, f"{KUBEPODS}/burstable": burstable, f"{KUBEPODS}/besteffort": SHARES_MIN}
    for pod in pods:
        groups[pod.path] = groups[f"{pod.path}/{CONTAINER}"] = shares_of(pod.request_milli)
    return groups


class Groups:
    """Creates, fills, reads and removes the demo's cgroups in each hierarchy of a mount."""

    def __init__(self, mount: Path) -> None:
        """Find the hierarchies. Raises NoGroupsError if no hierarchy with CPU accounting is mounted."""
        self.mount = mount
        self.version = 2 if (mount / "cgroup.controllers").exists() else 1
        self._controllers = ""
        """v2: controllers that inner cgroups enable for their children."""
        if self.version == 2:
            self._hierarchies = [mount]
            there = (mount / "cgroup.controllers").read_text().split()
            if "cpu" not in there:
                raise NoGroupsError(f"{mount} has no cgroup controller cpu")
            self._controllers = " ".join(f"+{name}" for name in V2_WANTED if name in there)
        else:
            absent = [name for name in V1_NEEDED if not (mount / name / "cgroup.procs").exists()]
            if absent:
                raise NoGroupsError(f"{mount} has no cgroup controller {' or '.join(absent)}")
            # cpu and cpuacct are often one hierarchy under two names.
            found = {(mount / name).resolve(): None for name in V1_WANTED if (mount / name / "cgroup.procs").exists()}
            self._hierarchies = list(found)
            if (mount / "unified/cgroup.controllers").exists():  # hybrid: runtimes join it, too; it has PSI
                self._hierarchies.append(mount / "unified")
        self._lock: int | None = None

    def open(self, capacity_milli: int) -> int:
        """Lock the machine for this demo, remove leftovers, create the tiers; return the number of killed processes.

        Raises NoGroupsError if another demo runs, or the cgroups are not writable.
        """
        try:
            self._take()
            ended = self.remove()
            self.make([], capacity_milli)
        except OSError as exc:
            self.close()
            raise NoGroupsError(f"{exc.filename or self.mount}: {exc.strerror}") from exc
        return ended

    def _take(self) -> None:
        self._lock = os.open(self._hierarchies[0], os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise NoGroupsError("another demo is running on this machine") from None

    def make(self, pods: list[PodGroup], capacity_milli: int) -> None:
        """Create the cgroups of these pods; others are removed. Raises OSError if one cannot be written."""
        wanted = plan(pods, capacity_milli)
        for hierarchy in self._hierarchies:
            for pod in (hierarchy / KUBEPODS).glob("*/pod*"):
                if str(pod.relative_to(hierarchy)) not in wanted:
                    _remove_tree(pod)
            if self.version == 2:
                (hierarchy / "cgroup.subtree_control").write_text(self._controllers)
            for group, shares in wanted.items():
                folder = hierarchy / group
                folder.mkdir(exist_ok=True)
                if self.version == 2 or (folder / "cpu.shares").exists():
                    self._weigh(folder, shares)
                if self.version == 2 and not group.endswith(f"/{CONTAINER}"):
                    (folder / "cgroup.subtree_control").write_text(self._controllers)

    def weigh(self, group: str, shares: int) -> None:
        """Change a cgroup's weight until the cgroups are recreated."""
        self._weigh((self.mount if self.version == 2 else self.mount / "cpu") / group, shares)

    def _weigh(self, group: Path, shares: int) -> None:
        name, text = ("cpu.weight", weight_of(shares)) if self.version == 2 else ("cpu.shares", shares)
        (group / name).write_text(str(text))

    def join_files(self, pod: PodGroup) -> list[Path]:
        """Return the ``cgroup.procs`` files that a process of the pod writes itself to."""
        return [hierarchy / pod.path / CONTAINER / "cgroup.procs" for hierarchy in self._hierarchies]

    def cpu_s(self, group: str) -> float:
        """Return the CPU seconds used by a cgroup; 0 if it does not exist."""
        name, unit = ("cpuacct.usage", 1e9) if self.version == 1 else ("cpu.stat", 1e6)
        hierarchy = (self.mount / "cpuacct") if self.version == 1 else self.mount
        try:
            text = (hierarchy / group / name).read_text()
        except FileNotFoundError:
            return 0.0
        return int(text if self.version == 1 else text.split()[1]) / unit

    def limit_memory(self, limit_bytes: int) -> None:
        """Limit the memory of all demo cgroups, which represent a small machine. Raises NoGroupsError."""
        try:
            self._memory_file(OWN, "limit").write_text(str(limit_bytes))
        except OSError as exc:
            raise NoGroupsError(
                f"the memory of control groups cannot be limited: {exc.filename}: {exc.strerror}"
            ) from exc

    def memory_bytes(self, group: str) -> int:
        """Return the memory of a cgroup with its page cache."""
        return int(self._memory_file(group, "held").read_text())

    def limit_files(self, pod: PodGroup) -> list[Path]:
        """Return the files with the memory limits of a pod's cgroups."""
        return [self._memory_file(group, "limit") for group in (f"{pod.path}/{CONTAINER}", pod.path)]

    def _memory_file(self, group: str, what: Literal["limit", "held"]) -> Path:
        if self.version == 1:
            return self.mount / "memory" / group / f"memory.{'limit' if what == 'limit' else 'usage'}_in_bytes"
        return self.mount / group / ("memory.max" if what == "limit" else "memory.current")

    def remove(self) -> int:
        """Kill all processes and remove the cgroups; returns the number of processes."""
        return sum(_remove_tree(hierarchy / OWN) for hierarchy in self._hierarchies)

    def close(self) -> None:
        """Remove the cgroups and unlock the machine."""
        if self._lock is None:
            return
        self.remove()
        os.close(self._lock)
        self._lock = None


def _remove_tree(root: Path, wait_s: float = 5.0) -> int:
    """Kill every process in a cgroup tree, then remove it from the leaves up."""
    ended: set[int] = set()
    until_s = time.monotonic() + wait_s
    while (pids := set(_pids(root))) and time.monotonic() < until_s:
        for pid in pids - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= pids
        time.sleep(0.01)
    for folder, _, _ in os.walk(root, topdown=False):
        _remove_one(Path(folder), until_s)
    return len(ended)


def _remove_one(group: Path, until_s: float) -> None:
    """Remove an empty cgroup; the kernel needs a moment after its last process."""
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.01)
        else:
            return


def _pids(root: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(root):
        try:
            text = (Path(folder) / "cgroup.procs").read_text()
        except OSError:  # it was removed concurrently
            continue
        yield from map(int, text.split())
