"""Stalls of latency-sensitive cgroups: counted many times a second from few files, and awaited by PSI triggers.

Cgroups with best-effort pods are not watched. PSI counts throttled processes as stalled, so such a cgroup, and
the whole node, are under pressure whenever best-effort pods are suppressed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import select
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room, figures, renewed, risen_us
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, GUARANTEED_MAX, Hierarchy, stalling_groups
from slacktide.agents.node.run_delay import RunDelayReader, groups_of, is_limited, pods_of, throttled_us
from slacktide.schemas.sample import PressureLook

_USAGE_USEC = parse.field(b"usage_usec")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimeFile:
    """Where the kernel counts the CPU time of cgroups, and how to read it."""

    root: Path | None
    """None: it is not mounted."""
    name: str
    count_ns: Callable[[bytes], int]

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> CpuTimeFile:
        """Return the file of cgroups v1 or v2."""
        if hierarchy.version == 2:
            return cls(root=hierarchy.cpu, name="cpu.stat", count_ns=lambda text: _USAGE_USEC(text) * 1_000)
        return cls(root=hierarchy.cpuacct, name="cpuacct.usage", count_ns=parse.number)

    def path(self, group: str | PurePosixPath) -> str:
        """Return the file of a cgroup, which is relative to each root."""
        return f"{self.root}/{group}/{self.name}"


class LatencySensitiveUse:
    """CPU time of the pods' cgroup minus its best-effort tier."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        file = CpuTimeFile.of(hierarchy)
        self._count_ns, self._known = file.count_ns, file.root is not None
        self._pods, self._best_effort = (
            KeptFile(file.path(group), file.name, Room(1)) for group in (hierarchy.pods, hierarchy.tier(BEST_EFFORT))
        )
        self.best_effort_ns = 0
        """CPU time of the best-effort tier at the last reading."""

    def cpu_ns(self) -> int | None:
        """Return the total CPU time; None: unknown, as once after the best-effort cgroup was recreated."""
        if not self._known:
            return None
        try:
            pods_ns, best_effort_ns = self._count_ns(self._pods.read()), self._count_ns(self._best_effort.read())
        except (OSError, ValueError):
            return None
        before_ns, self.best_effort_ns = self.best_effort_ns, best_effort_ns
        return None if best_effort_ns < before_ns else pods_ns - best_effort_ns

    def close(self) -> None:
        """Close the files."""
        self._pods.close()
        self._best_effort.close()


LISTED_NS = 5_000_000_000
LIMITED_MAX = 256
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Counters at one time. Those of cgroups are kept by cgroup, since cgroups come and go."""

    mono_ns: int
    ls_ns: int
    be_ns: int
    idle_us: int
    cpu_stall_us: Mapping[str, int]
    mem_stall_us: Mapping[str, int]
    throttled_us: Mapping[str, int]


class StallReader:
    """Reads looks, each since the previous one. PSI per cgroup is on v2, and beside v1 in the folder ``unified``.

    Without it, the run-queue delay of threads counts, per their own running time.
    """

    def __init__(self, hierarchy: Hierarchy, proc_mount: Path) -> None:
        self._hierarchy = hierarchy
        self._use = LatencySensitiveUse(hierarchy)
        self._stat = KeptFile(f"{proc_mount}/stat", "stat", Room(1))
        self._room = Room(2 * (GUARANTEED_MAX + 1) + LIMITED_MAX)
        self._cpu: dict[str, KeptFile] = {}
        self._mem: dict[str, KeptFile] = {}
        self._limited: dict[str, KeptFile] = {}
        self._listed_ns = -LISTED_NS
        self._before: _Counted | None = None
        self._run_delay = RunDelayReader(hierarchy, proc_mount)

    def look(self, mono_ns: int) -> PressureLook | None:
        """Return the counts since the previous look; None: unknown, as in the first look."""
        if mono_ns - self._listed_ns >= LISTED_NS:
            self._listed_ns = mono_ns
            self._list()
        before, self._before = self._before, self._count(mono_ns)
        now = self._before
        if before is None or now is None or now.ls_ns < before.ls_ns or now.be_ns < before.be_ns:
            return None
        ran_us, stall_us = (now.ls_ns - before.ls_ns) // 1_000, risen_us(before.cpu_stall_us, now.cpu_stall_us)
        if not self._cpu:
            delay = self._run_delay.look(mono_ns)
            if delay is None:
                return None
            ran_us, stall_us = delay.ran_us, delay.waited_us
        return PressureLook(
            span_us=(now.mono_ns - before.mono_ns) // 1_000,
            ls_cpu_us=ran_us,
            be_cpu_us=(now.be_ns - before.be_ns) // 1_000,
            idle_us=max(0, now.idle_us - before.idle_us),
            cpu_stall_us=stall_us,
            mem_stall_us=risen_us(before.mem_stall_us, now.mem_stall_us),
            throttled_us=risen_us(before.throttled_us, now.throttled_us),
        )

    def close(self) -> None:
        """Close the files."""
        self._use.close()
        self._stat.close()
        self._run_delay.close()
        for files in (self._cpu, self._mem, self._limited):
            for file in files.values():
                file.close()

    def _count(self, mono_ns: int) -> _Counted | None:
        ls_ns = self._use.cpu_ns()
        cpu = figures(self._cpu, parse.stall_us)
        if ls_ns is None or (self._cpu and not cpu):
            return None
        try:
            idle_us = parse.idle_ticks(self._stat.read()) * _TICK_US
        except (OSError, ValueError):
            return None
        return _Counted(
            mono_ns=mono_ns,
            ls_ns=ls_ns,
            be_ns=self._use.best_effort_ns,
            idle_us=idle_us,
            cpu_stall_us=cpu,
            mem_stall_us=figures(self._mem, parse.stall_us),
            throttled_us=figures(self._limited, throttled_us),
        )

    def _list(self) -> None:
        root = self._hierarchy.unified
        groups = [] if root is None else [str(group) for group in stalling_groups(root, self._hierarchy)]
        self._cpu = renewed(self._cpu, [f"{group}/cpu.pressure" for group in groups], self._room)
        if not figures(self._cpu, parse.stall_us):  # the kernel may have the files, and refuse to read them
            groups, self._cpu = [], renewed(self._cpu, [], self._room)
        self._mem = renewed(self._mem, [f"{group}/memory.pressure" for group in groups], self._room)
        limited = [path for _, path in zip(range(LIMITED_MAX), self._limits(), strict=False)] if groups else []
        self._limited = renewed(self._limited, limited, self._room)

    def _limits(self) -> Iterator[str]:
        """The files with throttled time of pods and containers with a CPU limit."""
        for pod in pods_of(self._hierarchy):
            yield from (f"{group}/cpu.stat" for group in groups_of(pod) if is_limited(group))


WINDOW_MS_MIN, WINDOW_MS_MAX = 500, 10_000
"""Limits that every kernel accepts."""
UNPRIVILEGED = "without CAP_SYS_RESOURCE, the kernel accepts only windows that are a multiple of 2 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A trigger's threshold: total stall within a window."""

    stall_ms: int = 50
    window_ms: int = 500

    def __str__(self) -> str:
        return f"{self.stall_ms}/{self.window_ms}"

    @classmethod
    def parse(cls, text: str) -> Stall | None:
        """Parse ``on``, ``off`` (None) or ``STALL/WINDOW`` in ms. Raises ValueError if malformed or out of range."""
        if text in {"on", "off"}:
            return cls() if text == "on" else None
        found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
        if found is None:
            raise ValueError(f"{text!r} is not on, off or STALL/WINDOW in milliseconds, such as {cls()}")
        stall_ms, window_ms = int(found[1]), int(found[2])
        if not WINDOW_MS_MIN <= window_ms <= WINDOW_MS_MAX or not 0 < stall_ms <= window_ms:
            raise ValueError(
                f"{text!r}: accepted: a window of {WINDOW_MS_MIN} to {WINDOW_MS_MAX} ms, and a stall of 1 ms up "
                "to the window"
            )
        return cls(stall_ms=stall_ms, window_ms=window_ms)


def set_trigger(path: str, stall: Stall) -> int:
    """Set a trigger. Poll the descriptor for ``POLLPRI``; closing it removes the trigger. Raises OSError if refused."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    if os.fstat(fd).st_size:  # a kernel file has size 0: this is a plain file of a simulated node
        os.close(fd)
        raise OSError(errno.EOPNOTSUPP, "not a file of a kernel", path)
    try:
        os.write(fd, b"some %d %d\0" % (stall.stall_ms * 1000, stall.window_ms * 1000))
    except OSError as error:
        os.close(fd)
        if error.errno == errno.EINVAL:  # the numbers are valid, so EINVAL means missing CAP_SYS_RESOURCE
            raise PermissionError(errno.EPERM, UNPRIVILEGED, path) from error
        raise
    return fd


class Trigger:
    """A trigger on the event loop. Calls ``fired`` at most once per window, and ``gone`` when its cgroup is removed.

    It has its own epoll, because an outer epoll would consume the event. Raises OSError as ``set_trigger``.
    """

    def __init__(self, path: str, stall: Stall, fired: Callable[[], None], gone: Callable[[], None]) -> None:
        self._fired, self._gone = fired, gone
        self._fd = set_trigger(path, stall)
        self._epoll = select.epoll()
        self._epoll.register(self._fd, select.EPOLLPRI)
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._ready)

    def close(self) -> None:
        """Remove the trigger."""
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._epoll.close()
        os.close(self._fd)

    def _ready(self) -> None:
        if any(event & select.EPOLLERR for _, event in self._epoll.poll(0)):
            self._gone()
        else:
            self._fired()


log = logging.getLogger(__name__)

Kind = Literal["cpu", "memory"]
KINDS: tuple[Kind, ...] = ("cpu", "memory")
NO_GROUPS = "no pressure of cgroups here; the node's pressure also counts best-effort pods that are throttled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureFile:
    """A PSI file of the kernel."""

    kind: Kind
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Which files to watch, and for which stalls."""

    stall: Stall
    files: Callable[[], list[PressureFile]]


def pressure_files(hierarchy: Hierarchy, proc_mount: Path) -> list[PressureFile]:
    """Return PSI files of latency-sensitive cgroups. Without PSI for cgroups: the node's files, except for CPU."""
    groups = [] if hierarchy.unified is None else list(stalling_groups(hierarchy.unified, hierarchy))
    if not groups:
        return [PressureFile(kind="memory", path=f"{proc_mount}/pressure/memory")]
    return [PressureFile(kind=kind, path=f"{group}/{kind}.pressure") for group in groups for kind in KINDS]


class PressureWatch:
    """Watches all files. ``pressed`` is called on the event loop with the resource that was short."""

    def __init__(self, waited: Waited, pressed: Callable[[Kind], None]) -> None:
        self._waited = waited
        self._pressed = pressed
        self._triggers: dict[PressureFile, Trigger] = {}
        self._refused: set[PressureFile] = set()
        self._there: list[PressureFile] | None = None
        self._reported: set[tuple[Kind, str]] = set()

    def look(self) -> bool:
        """Follow new, removed and recreated cgroups. Return whether anything changed."""
        there = self._waited.files()
        if there == self._there and len(there) == len(self._triggers) + len(self._refused):
            return False
        self._there = there
        for file in self._triggers.keys() - set(there):
            self._forget(file)
        self._refused &= set(there)
        for kind in sorted(set(KINDS) - {file.kind for file in there}):
            self._report_once(kind, NO_GROUPS)
        for file in there:
            if file not in self._triggers and file not in self._refused:
                self._wait_on(file)
        return True

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many triggers of each kind are ``set`` or were ``refused``."""
        return Counter(
            [*((file.kind, "set") for file in self._triggers), *((file.kind, "refused") for file in self._refused)]
        )

    def close(self) -> None:
        """Close all triggers."""
        for file in list(self._triggers):
            self._forget(file)

    def _wait_on(self, file: PressureFile) -> None:
        fired, gone = partial(self._pressed, file.kind), partial(self._forget, file)
        try:
            self._triggers[file] = Trigger(file.path, self._waited.stall, fired, gone)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.isdir(os.path.dirname(file.path)):  # noqa: PTH112, PTH120
                return  # its cgroup was just removed
            self._refused.add(file)
            self._report_once(file.kind, error.strerror or str(error))

    def _report_once(self, kind: Kind, why: str) -> None:
        if (kind, why) not in self._reported:
            self._reported.add((kind, why))
            log.warning("cannot set a trigger for %s pressure", kind, extra={"why": why})

    def _forget(self, file: PressureFile) -> None:
        self._triggers.pop(file).close()
