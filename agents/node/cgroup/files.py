"""Control files: those read often are kept open, since opening costs more than reading. All writes go through here."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    CPUSET_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    Write,
)
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob_table import KNOBS

_READ_BYTES = 16_384
_OPEN = os.O_RDONLY | os.O_CLOEXEC


def read_once(path: str) -> bytes:
    """Read a file once, at most 16 KiB, with few system calls. Raises OSError if it is missing or unreadable."""
    fd = os.open(path, _OPEN)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


def why_of(error: OSError | ValueError) -> str:
    """Return the reason of an error: errno name, then the message."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{errno.errorcode.get(error.errno, error.errno)} ({os.strerror(error.errno)})"
    return str(error)


@dataclass(slots=True)
class Room:
    """Limits the descriptors kept open. Beyond it, files are opened for each reading."""

    left: int

    @classmethod
    def of_process(cls) -> Room:
        """Return half of this process' descriptor limit. The other half is for sockets and logs."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(max(64, min(soft, 65_536) // 2))


class KeptFile:
    """A kernel file, kept open between reads.

    A recreated cgroup has a new file (the old descriptor gives ENODEV), which is opened again. Plain files of simulated
    nodes are not kept open, since they may be replaced.
    """

    __slots__ = ("_fd", "_path", "_room", "name")

    def __init__(self, path: str, name: str, room: Room) -> None:
        self.name = name
        self._path = path
        self._room = room
        self._fd = -1

    def read(self) -> bytes:
        """Read the file, at most 16 KiB. Raises OSError if it is missing or unreadable."""
        if self._fd >= 0:
            try:
                return os.pread(self._fd, _READ_BYTES, 0)
            except OSError:
                self.close()
        fd = os.open(self._path, _OPEN)
        try:
            text = os.pread(fd, _READ_BYTES, 0)
            # A kernel file has size 0 although it has content.
            if text and self._room.left > 0 and os.fstat(fd).st_size == 0:
                self._fd, fd = fd, -1
                self._room.left -= 1
        finally:
            if fd >= 0:
                os.close(fd)
        return text

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._room.left += 1


_T = TypeVar("_T")


def renewed(kept: Mapping[str, KeptFile], paths: Iterable[str], room: Room) -> dict[str, KeptFile]:
    """Return the files of these paths. Those in ``kept`` stay open, and the others there are closed."""
    wanted = {path: kept.get(path) or KeptFile(path, path, room) for path in paths}
    for path in kept.keys() - wanted.keys():
        kept[path].close()
    return wanted


def figures(files: Mapping[str, KeptFile], read: Callable[[bytes], _T]) -> dict[str, _T]:
    """Return what can be read, by path. Others are gone, or the kernel does not have them."""
    found = {}
    for path, file in files.items():
        with suppress(OSError, ValueError):
            found[path] = read(file.read())
    return found


def risen_us(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Return by how much the counters rose together. Those that are new or were reset count as 0."""
    return sum(max(0, figure - before[path]) for path, figure in now.items() if path in before)


WRITABLE = frozenset({QUOTA_FILE, PERIOD_FILE, CPU_MAX_FILE, CPUSET_FILE})
_GONE = (errno.ENOENT, errno.ENODEV)
_SUBTREE_CONTROL = "cgroup.subtree_control"
_ROOT_HINTS = {
    errno.EACCES: "run the agent as root",
    errno.EPERM: "run the agent as root",
    errno.EROFS: "mount the cgroup hierarchy writable",
}
_QUOTA_HINTS = _ROOT_HINTS | {
    errno.EINVAL: "the value must be at most that of the limited parent cgroup, at least its burst, and on cgroup v1 "
    "also at least that of its children; the kernel accepts quotas from 1000 and periods from 1000 to 1000000 us",
}
_CPUSET_HINTS = _ROOT_HINTS | {
    errno.EACCES: "run the agent as root; on cgroup v1 the parent cgroup must have all these CPUs, too",
    errno.ERANGE: "no such CPU",
    errno.EBUSY: "on cgroup v1 no child may have a CPU that this cgroup loses; check for a child that was just created",
    errno.EINVAL: "another cgroup has these CPUs exclusively (cpuset.cpu_exclusive, cpuset.cpus.partition), or "
    "they are offline",
}

_KNOB_HINTS = _ROOT_HINTS | {
    errno.EINVAL: "the kernel does not accept this value here, for example cpu.shares if cpu.idle is 1",
    errno.EBUSY: "more memory is in use than can be reclaimed",
}

_BANDWIDTH = (KNOBS["cfs_quota_us"], KNOBS["cfs_burst_us"])
_HINTS = dict.fromkeys([file for row in _BANDWIDTH for file in (*row.v1, *row.v2)], _QUOTA_HINTS) | {
    CPUSET_FILE: _CPUSET_HINTS
}


_INSIDE_MAX = 1_000


class Knobs:
    """Control files below one root, the only writable place. ``writable`` lists the only files that may be written.

    Methods raise CgroupError if a file is missing, malformed or not writable, or the kernel refuses a write.
    """

    def __init__(self, hierarchy: Hierarchy, root: Path, writable: frozenset[str] = WRITABLE) -> None:
        self.root = root
        self._mount = hierarchy.mount
        self._writable = writable
        self._inside: set[Path] = set()
        """Folders already checked to be inside the root. Cgroups have no links."""

    def read(self, group: PurePosixPath, file: str, parse: Callable[[bytes], _T]) -> _T:
        """Read one value."""
        path = f"{self.root}/{group}/{file}"
        try:
            return parse(read_once(path))
        except OSError as error:
            raise CgroupError(str(Path(path)), self._explain(Path(path), error)) from error
        except ValueError as error:
            raise CgroupError(str(Path(path)), why_of(error)) from error

    def carry_out(self, writes: Iterable[Write]) -> None:
        """Write in order. Cgroups removed meanwhile are skipped."""
        for write in writes:
            try:
                self.write(write)
            except CgroupError as error:
                if write.group == BEST_EFFORT_ITSELF or not is_gone(error):
                    raise

    def write(self, write: Write) -> None:
        """Write one file."""
        path = self.root / write.group / write.file
        self._check_allowed(path)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                written = os.write(fd, f"{write.text}\n".encode())
                if os.fstat(fd).st_size > written:  # only a plain file of a simulated node keeps an old tail
                    os.ftruncate(fd, written)
            finally:
                os.close(fd)
        except OSError as error:
            raise CgroupError(str(path), f"writing {write.text!r}: {self._explain(path, error)}") from error

    def groups(self, top: PurePosixPath = BEST_EFFORT_ITSELF) -> list[PurePosixPath]:
        """Return a cgroup (default: the root) and all cgroups below it."""
        return [PurePosixPath(os.path.relpath(folder, self.root)) for folder, _, _ in os.walk(self.root / top)]

    def _check_allowed(self, path: Path) -> None:
        if path.name in self._writable and path.parent in self._inside:
            return
        folder = os.path.realpath(path.parent)
        root = os.path.realpath(self.root)
        if path.name not in self._writable or ".." in path.parts or os.path.commonpath([folder, root]) != root:
            raise CgroupError(str(path), f"not a writable knob of {root}: never written")
        if len(self._inside) >= _INSIDE_MAX:
            self._inside.clear()
        self._inside.add(path.parent)

    def _explain(self, path: Path, error: OSError) -> str:
        hints = _HINTS.get(path.name, _KNOB_HINTS)
        hint = hints.get(error.errno or 0, "")
        if error.errno == errno.ENOENT:
            hint = self._explain_absence(path)
        return f"{why_of(error)}: {hint}" if hint else why_of(error)

    def _explain_absence(self, path: Path) -> str:
        if not self.root.is_dir():
            if self._writable is not WRITABLE:
                return "the cgroup no longer exists"
            return "no best-effort cgroup now; a kubelet creates it at its start, systemd while a unit in it runs"
        if path.name not in {QUOTA_FILE, PERIOD_FILE, CPU_MAX_FILE, CPUSET_FILE}:
            return "the kernel does not have this knob"
        if path.name != CPU_MAX_FILE:
            return "this cgroup has no CPU limits; check that the kernel is built with CONFIG_CFS_BANDWIDTH"
        above = [folder for folder in (path.parent, *path.parent.parents) if folder.is_relative_to(self._mount)][1:]
        closed = []
        for control in (folder / _SUBTREE_CONTROL for folder in reversed(above)):
            try:
                enabled = b"cpu" in control.read_bytes().split()
            except OSError:
                enabled = False
            if not enabled:
                closed.append(str(control))
        return f"the cpu controller is not enabled for this cgroup: write +cpu to {' and then to '.join(closed)}"


def is_gone(error: CgroupError) -> bool:
    """Return whether the file or cgroup does not exist."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _GONE
