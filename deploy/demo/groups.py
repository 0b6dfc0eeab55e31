"""The demo's cgroups, with the kubelet's layout and weights.

All are below ``<hierarchy>/slacktide-demo``. The demo kills and removes nothing outside of it.
"""

import fcntl
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.node.cgroup.group_knobs import FILES
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
            self._lock = os.open(self._hierarchies[0], os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended = self.remove()
            self.make([], capacity_milli)
        except BlockingIOError:
            self._unlock()
            raise NoGroupsError("another demo is running on this machine") from None
        except OSError as exc:
            self.close()
            raise NoGroupsError(f"{exc.filename or self.mount}: {exc.strerror}") from exc
        return ended

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

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

    def _at(self, controller: str, group: str) -> Path:
        """Return the folder of a cgroup with this controller's files."""
        return self.mount / group if self.version == 2 else self.mount / controller / group

    def weigh(self, group: str, shares: int) -> None:
        """Change a cgroup's weight until the cgroups are recreated."""
        self._weigh(self._at("cpu", group), shares)

    def _weigh(self, group: Path, shares: int) -> None:
        file = FILES[self.version]["cpu_shares"]
        (group / file.name).write_text(file.text(shares))

    def join_files(self, pod: PodGroup) -> list[Path]:
        """Return the ``cgroup.procs`` files that a process of the pod writes itself to."""
        return [hierarchy / pod.path / CONTAINER / "cgroup.procs" for hierarchy in self._hierarchies]

    def cpu_s(self, group: str) -> float:
        """Return the CPU seconds used by a cgroup; 0 if it does not exist."""
        name, unit = ("cpuacct.usage", 1e9) if self.version == 1 else ("cpu.stat", 1e6)
        try:
            text = (self._at("cpuacct", group) / name).read_text()
        except FileNotFoundError:
            return 0.0
        return int(text if self.version == 1 else text.split()[1]) / unit

    def limit_memory(self, limit_bytes: int) -> None:
        """Limit the memory of all demo cgroups, which represent a small machine. Raises NoGroupsError."""
        try:
            self._limit_file(OWN).write_text(str(limit_bytes))
        except OSError as exc:
            raise NoGroupsError(
                f"the memory of control groups cannot be limited: {exc.filename}: {exc.strerror}"
            ) from exc

    def memory_bytes(self, group: str) -> int:
        """Return the memory of a cgroup with its page cache."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        return int((self._at("memory", group) / name).read_text())

    def limit_files(self, pod: PodGroup) -> list[Path]:
        """Return the files with the memory limits of a pod's cgroups."""
        return [self._limit_file(group) for group in (f"{pod.path}/{CONTAINER}", pod.path)]

    def _limit_file(self, group: str) -> Path:
        return self._at("memory", group) / ("memory.limit_in_bytes" if self.version == 1 else "memory.max")

    def remove(self) -> int:
        """Kill all processes and remove the cgroups; returns the number of processes."""
        return sum(_remove_tree(hierarchy / OWN) for hierarchy in self._hierarchies)

    def close(self) -> None:
        """Remove the cgroups and unlock the machine."""
        if self._lock is not None:
            self.remove()
            self._unlock()


def _remove_tree(root: Path, wait_s: float = 5.0) -> int:
    """Kill every process in a cgroup tree, and remove it from the leaves up; returns the number of processes."""
    ended: set[int] = set()
    until_s = time.monotonic() + wait_s
    while groups := [Path(folder) for folder, _, _ in os.walk(root, topdown=False)]:
        for group in groups:
            with suppress(OSError):  # it was removed concurrently
                pids = set(map(int, (group / "cgroup.procs").read_text().split())) - {os.getpid()}
                ended |= pids
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        for group in groups:
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # the kernel needs a moment after a cgroup's last process
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.01)
    return len(ended)
