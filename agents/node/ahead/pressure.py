"""PSI triggers on latency-sensitive cgroups: the kernel wakes this process on a stall, while cgroups come and go.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.stall import stalling_groups

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
        def fired() -> None:
            self._pressed(file.kind)

        def gone() -> None:
            self._forget(file)

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
