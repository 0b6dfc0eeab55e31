"""Time for which threads of latency-sensitive pods waited for a CPU, on kernels without PSI of cgroups.

``/proc/TID/schedstat`` has the time that a thread ran, and the time that it waited in a run queue. Only the busiest
threads are read, so that the cost does not grow with the number of threads.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from pathlib import Path

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room, figures, read_once, renewed
from slacktide.agents.node.cgroup.hierarchy import BURSTABLE, GUARANTEED, Hierarchy

LISTED_NS = 5_000_000_000
"""How often threads are listed."""
LISTED_MAX = 512
READ_MAX = 32
"""Most threads that a look reads. They are those that ran and waited longest between the last two lists."""
NO_HOST_PID = "threads of pods are not in this PID namespace: run the agent with hostPID"
NO_TIMES = "no thread of latency-sensitive pods has run, or the kernel does not count how long threads wait"
_THROTTLED_USEC = parse.optional_field(b"throttled_usec")
_THROTTLED_NS = parse.optional_field(b"throttled_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDelay:
    """Of all threads together, since the previous look."""

    ran_us: int
    waited_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Container:
    tids: Sequence[int]
    limited: Sequence[str]
    """Its cgroup and its pod's, if they have a CPU quota."""


class RunDelayReader:
    """Reads looks, each since the previous one."""

    def __init__(self, hierarchy: Hierarchy, proc_mount: Path) -> None:
        self._hierarchy, self._proc = hierarchy, proc_mount
        self._tasks = "cgroup.threads" if hierarchy.version == 2 else "tasks"
        self._room = Room(3 * READ_MAX)
        self._listed_ns = -LISTED_NS
        self._totals: dict[int, tuple[int, int]] = {}
        """What each listed thread had run and waited, in ns."""
        self._times: dict[str, KeptFile] = {}
        self._limits: dict[str, Sequence[str]] = {}
        """The files with the throttled time of each thread's cgroups that have a quota."""
        self._throttled: dict[str, KeptFile] = {}
        self._before: dict[str, tuple[int, int]] = {}
        self._throttled_us: dict[str, int] = {}
        self._why = ""

    def look(self, mono_ns: int) -> RunDelay | None:
        """Return the times since the previous look; None: threads are not readable, or it is the first look.

        Threads of a cgroup that its own quota throttled meanwhile do not count: the kernel counts that as waiting, too.
        """
        if mono_ns - self._listed_ns >= LISTED_NS:
            self._listed_ns = mono_ns
            self._list()
        if self._why:
            return None
        before, self._before = self._before, figures(self._times, parse.schedstat_ns)
        before_us, self._throttled_us = self._throttled_us, figures(self._throttled, throttled_us)
        if not before:
            return None
        throttled = {path for path, us in self._throttled_us.items() if us > before_us.get(path, us)}
        ran_ns = waited_ns = 0
        for path, (ran, waited) in self._before.items():
            if path in before and throttled.isdisjoint(self._limits[path]):
                ran_ns += max(0, ran - before[path][0])
                waited_ns += max(0, waited - before[path][1])
        return RunDelay(ran_us=ran_ns // 1_000, waited_us=waited_ns // 1_000)

    def trouble(self) -> str:
        """Look for threads, and return why they are not readable; "": they are."""
        self._list()
        return self._why

    def close(self) -> None:
        """Close the files."""
        for file in (*self._times.values(), *self._throttled.values()):
            file.close()

    def _list(self) -> None:
        try:
            containers = list(self._containers())
        except (OSError, ValueError) as error:
            self._why = f"threads of pods: {error}"
            return
        # In turn of each container, so that none with many threads hides the others.
        ranked = sorted(((place, tid) for one in containers for place, tid in enumerate(one.tids)), key=itemgetter(0))
        tids = [tid for _, tid in ranked[:LISTED_MAX]]
        self._why = NO_HOST_PID if 0 in tids else ""
        before, self._totals = self._totals, {}
        for tid in tids:
            with suppress(OSError, ValueError):
                self._totals[tid] = parse.schedstat_ns(read_once(self._file(tid)))
        if not self._why and not any(map(sum, self._totals.values())):
            self._why = NO_TIMES
        busy = {tid: sum(both) - sum(before.get(tid, (0, 0))) for tid, both in self._totals.items()}
        read = set(nlargest(READ_MAX, busy, key=busy.__getitem__))
        self._limits = {
            self._file(tid): [f"{group}/cpu.stat" for group in one.limited]
            for one in containers
            for tid in one.tids
            if tid in read
        }
        self._times = renewed(self._times, self._limits, self._room)
        self._throttled = renewed(self._throttled, chain.from_iterable(self._limits.values()), self._room)

    def _file(self, tid: int) -> str:
        return f"{self._proc}/{tid}/schedstat"

    def _containers(self) -> Iterator[_Container]:
        for pod in pods_of(self._hierarchy):
            of_pod = [pod] if is_limited(pod) else []
            for group in groups_of(pod):
                own = [group] if group != pod and is_limited(group) else []
                yield _Container(tids=self._tids(group), limited=of_pod + own)

    def _tids(self, group: str) -> Sequence[int]:
        """Return the threads of a cgroup; none if it was just removed. Raises OSError or ValueError if unreadable."""
        try:
            return parse.thread_ids(read_once(f"{group}/{self._tasks}"))[:LISTED_MAX]
        except OSError:
            if os.path.isdir(group):  # noqa: PTH112
                raise
            return []


def pods_of(hierarchy: Hierarchy) -> Iterator[str]:
    """Return the cgroups of latency-sensitive pods."""
    for tier in (BURSTABLE, GUARANTEED):
        with suppress(OSError):
            yield from sorted(f"{hierarchy.cpu}/{group}" for _, group in hierarchy.pod_groups(tier))


def groups_of(pod: str) -> list[str]:
    """Return the cgroup of a pod and those of its containers."""
    found = [pod]
    with suppress(OSError):
        found += sorted(one.path for one in os.scandir(pod) if one.is_dir())
    return found


def is_limited(group: str) -> bool:
    """Return whether a cgroup has a CPU quota."""
    for name, unlimited in (("cpu.max", b"max"), ("cpu.cfs_quota_us", b"-1")):
        try:
            return not read_once(f"{group}/{name}").startswith(unlimited)
        except OSError:
            continue
    return False


def throttled_us(text: bytes) -> int:
    """Parse the throttled time of ``cpu.stat``."""
    usec = _THROTTLED_USEC(text)
    return (_THROTTLED_NS(text) or 0) // 1_000 if usec is None else usec
