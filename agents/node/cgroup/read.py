"""Reads every figure of the node and its pods once. Unreadable figures are noted with the reason; nothing raises."""

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room, why_of
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, TIERS, Hierarchy
from slacktide.agents.node.cgroup.parse import PodCounters
from slacktide.schemas.sample import Missing, Pressure

_T = TypeVar("_T")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PSI = {
    "cpu_some_pct": ("cpu", parse.pressure_pct(b"some")),
    "mem_some_pct": ("memory", parse.pressure_pct(b"some")),
    "mem_full_pct": ("memory", parse.pressure_pct(b"full")),
    "io_some_pct": ("io", parse.pressure_pct(b"some")),
    "io_full_pct": ("io", parse.pressure_pct(b"full")),
}


class Notes:
    """Figures that could not be read in one reading."""

    def __init__(self) -> None:
        self.missing: list[Missing] = []

    def figure(self, file: KeptFile, read: Callable[[bytes], _T]) -> _T | None:
        """Read one figure of a file; None and a note if that fails."""
        try:
            return read(file.read())
        except (OSError, ValueError) as error:
            self.add(file.name, why_of(error))
            return None

    def add(self, what: str, why: str) -> None:
        """Note one figure."""
        self.missing.append(Missing(what=what, why=why))


class NodeReader:
    """Reads /proc of the node, or a folder like it."""

    def __init__(self, proc_mount: Path, room: Room) -> None:
        def file(name: str) -> KeptFile:
            return KeptFile(str(proc_mount / name), str(proc_mount / name), room)

        self._stat = file("stat")
        self._meminfo = file("meminfo")
        self._pressure = {kind: file(f"pressure/{kind}") for kind in ("cpu", "memory", "io")}

    def cpu_ns(self, notes: Notes) -> int | None:
        """Return the busy time of all CPUs since the machine started."""
        ticks = notes.figure(self._stat, parse.busy_ticks)
        return None if ticks is None else ticks * _TICK_NS

    def mem_bytes(self, notes: Notes) -> int | None:
        """Return the working set of the node."""
        return notes.figure(self._meminfo, parse.used_bytes)

    def pressure(self, notes: Notes) -> Pressure:
        """Return the PSI averages over 10 s. There is one note per unreadable file."""
        texts = {kind: notes.figure(file, bytes) for kind, file in self._pressure.items()}
        figures: dict[str, float] = {}
        for name, (kind, read) in PSI.items():
            text = texts[kind]
            if text is None:
                continue
            try:
                figures[name] = read(text)
            except ValueError as error:
                notes.add(self._pressure[kind].name, why_of(error))
        return Pressure(**figures)

    def close(self) -> None:
        """Close all files."""
        for file in (self._stat, self._meminfo, *self._pressure.values()):
            file.close()


class PodReading(NamedTuple):
    """Figures of one pod's cgroup now."""

    counters: PodCounters
    mem_bytes: int | None
    """Working set: without inactive page cache."""
    best_effort: bool


_USAGE_USEC = parse.field(b"usage_usec")
_PERIODS = parse.field(b"nr_periods")
_THROTTLED = parse.field(b"nr_throttled")
# v2 has cpu.stat even without the cpu controller.
_PERIODS_V2 = parse.optional_field(b"nr_periods")
_THROTTLED_V2 = parse.optional_field(b"nr_throttled")


class CpuTime:
    """CPU time and throttling of one cgroup."""

    def __init__(self, hierarchy: Hierarchy, group: str, room: Room) -> None:
        unified, cpuacct = hierarchy.version == 2, hierarchy.cpuacct
        self._stat = kept(hierarchy, hierarchy.cpu, group, "cpu.stat", room)
        self._time_in_stat = unified
        self._cpuacct = None if unified or cpuacct is None else kept(hierarchy, cpuacct, group, "cpuacct.usage", room)
        self._text: bytes | None = None
        self._parsed: tuple[int | None, int | None, int | None] = (None, None, None)

    def read(self, notes: Notes) -> PodCounters:
        """Return the counters since the cgroup was created."""
        cpu_ns, periods, throttled = notes.figure(self._stat, self._figures) or (None, None, None)
        if self._cpuacct is not None:
            cpu_ns = self.cpu_ns(notes)
        return PodCounters(cpu_ns=cpu_ns, periods=periods, throttled_periods=throttled)

    def cpu_ns(self, notes: Notes) -> int | None:
        """Return the CPU time alone, from one file."""
        if self._cpuacct is not None:
            return notes.figure(self._cpuacct, parse.number)
        return (notes.figure(self._stat, self._figures) or (None, None, None))[0]

    def throttled_periods(self, notes: Notes) -> int | None:
        """Return the throttled periods alone, from one file."""
        return (notes.figure(self._stat, self._figures) or (None, None, None))[2]

    def close(self) -> None:
        """Close its files."""
        for file in (self._stat, self._cpuacct):
            if file is not None:
                file.close()

    def _figures(self, text: bytes) -> tuple[int | None, int | None, int | None]:
        if text == self._text:  # as on v1 for every cgroup without a limit
            return self._parsed
        if self._time_in_stat:
            self._parsed = _USAGE_USEC(text) * 1000, _PERIODS_V2(text), _THROTTLED_V2(text)
        else:
            self._parsed = None, _PERIODS(text), _THROTTLED(text)
        self._text = text
        return self._parsed


def kept(hierarchy: Hierarchy, root: Path, group: str, name: str, room: Room) -> KeptFile:
    """Return a file of a cgroup, by its full name."""
    path = f"{root}/{group}/{name}"
    return KeptFile(path, os.path.relpath(path, hierarchy.mount), room)


MEM_NS_MIN = 1_500_000_000
"""Interval of reading a pod's memory: it changes slowly, and each reading makes the kernel sum it up."""
STILL_NS = 3_000_000_000
"""A pod without CPU use for this long is still: the kernel has summed up its counters, which takes some 2 s."""
STANDS_NS_MAX = 10_000_000_000
"""Longest reuse of a still pod's figures: its memory may be reclaimed meanwhile."""


class _Pod:
    def __init__(self, hierarchy: Hierarchy, group: str, room: Room, *, best_effort: bool) -> None:
        unified, memory = hierarchy.version == 2, hierarchy.memory
        self.relative = group
        self.group = f"{hierarchy.cpu}/{group}"
        self.best_effort = best_effort
        self._cpu = CpuTime(hierarchy, group, room)
        usage = "memory.current" if unified else "memory.usage_in_bytes"
        self._memory = (
            None
            if memory is None
            else (kept(hierarchy, memory, group, usage, room), kept(hierarchy, memory, group, "memory.stat", room))
        )
        self._inactive = parse.field(b"inactive_file" if unified else b"total_inactive_file")
        self._mem_bytes: int | None = None
        self._mem_ns = 0
        self.still = False
        self._whole: PodReading | None = None
        self._whole_ns = self._used_ns = 0

    def read(self, mono_ns: int, notes: Notes) -> PodReading:
        """Read all figures; for a still pod only its CPU time."""
        before, noted = self._whole, len(notes.missing)
        self.still = (
            before is not None
            and before.counters.cpu_ns is not None
            and self._whole_ns - self._used_ns >= STILL_NS
            and mono_ns - self._whole_ns < STANDS_NS_MAX
            and self._cpu.cpu_ns(Notes()) == before.counters.cpu_ns
        )
        if before is not None and self.still:
            return before
        if self._mem_bytes is None or mono_ns - self._mem_ns >= MEM_NS_MIN:
            self._mem_bytes, self._mem_ns = None, mono_ns
            if self._memory is not None:
                usage = notes.figure(self._memory[0], parse.number)
                inactive = notes.figure(self._memory[1], self._inactive)
                self._mem_bytes = None if usage is None or inactive is None else max(0, usage - inactive)
        now = PodReading(counters=self._cpu.read(notes), mem_bytes=self._mem_bytes, best_effort=self.best_effort)
        if before is None or before.counters.cpu_ns != now.counters.cpu_ns:
            self._used_ns = mono_ns
        # Unreadable figures are tried and noted each time.
        self._whole, self._whole_ns = None if len(notes.missing) > noted else now, mono_ns
        return now

    def close(self) -> None:
        self._cpu.close()
        for file in self._memory or ():
            file.close()


class PodsReader:
    """Reads the pods' cgroups of the three tiers. Each reading follows new and removed ones."""

    def __init__(self, hierarchy: Hierarchy, room: Room) -> None:
        self._hierarchy = hierarchy
        self._room = room
        self._pods: dict[str, _Pod] = {}

    def read(self, mono_ns: int, notes: Notes) -> dict[str, PodReading]:
        """Return every pod's figures by uid. Memory may be from the previous second."""
        for controller, root in (("cpuacct", self._hierarchy.cpuacct), ("memory", self._hierarchy.memory)):
            if root is None:
                notes.add(controller, f"the controller is not mounted under {self._hierarchy.mount}")
        self._look(notes)
        readings: dict[str, PodReading] = {}
        for uid, pod in list(self._pods.items()):
            noted = len(notes.missing)
            reading = pod.read(mono_ns, notes)
            if len(notes.missing) > noted and not os.path.isdir(pod.group):  # noqa: PTH112 - the path is a text
                del notes.missing[noted:]
                notes.add(f"pod {uid}", "deleted while it was read")
                self._forget(uid)
            else:
                readings[uid] = reading
        return readings

    def group(self, uid: str) -> PurePosixPath | None:
        """Return a pod's cgroup at the last reading, relative to each root; None: it had none."""
        pod = self._pods.get(uid)
        return None if pod is None else PurePosixPath(pod.relative)

    def still(self, uid: str) -> bool:
        """Return whether it had used no CPU for some seconds at the last reading."""
        pod = self._pods.get(uid)
        return pod is not None and pod.still

    def close(self) -> None:
        """Close all files."""
        for uid in list(self._pods):
            self._forget(uid)

    def _look(self, notes: Notes) -> None:
        there: dict[str, tuple[str, str]] = {}
        for tier in TIERS:
            try:
                there.update((uid, (tier, group)) for uid, group in self._hierarchy.pod_groups(tier))
            except OSError as error:
                path = self._hierarchy.cpu / self._hierarchy.tier(tier)
                notes.add(os.path.relpath(path, self._hierarchy.mount), why_of(error))
        for uid in self._pods.keys() - there.keys():
            self._forget(uid)
        for uid, (tier, group) in there.items():
            if uid not in self._pods:
                self._pods[uid] = _Pod(self._hierarchy, group, self._room, best_effort=tier == BEST_EFFORT)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid).close()
