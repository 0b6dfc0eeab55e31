"""Holds a limit: reads what groups hold, carries a plan out, reads it back. The one place that writes to a kernel."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.originals import Originals
from slacktide.agents.node.cgroup.plan import (
    BEST_EFFORT_ITSELF,
    CPU_MAX_FILE,
    PERIOD_FILE,
    QUOTA_FILE,
    Bandwidth,
    Write,
    plan_v1,
    plan_v2,
)
from slacktide.agents.node.cgroup.read import why_of
from slacktide.schemas.errors import CgroupError

_T = TypeVar("_T")
WRITABLE = frozenset({QUOTA_FILE, PERIOD_FILE, CPU_MAX_FILE})
_GONE = (errno.ENOENT, errno.ENODEV)
_SUBTREE_CONTROL = "cgroup.subtree_control"
_HINTS = {
    errno.EINVAL: "a group may not hold more than the limited group above it (on cgroup v1 nor less than one below), "
    "nor less than its own burst; the kernel takes quotas from 1000 and periods from 1000 to 1000000 microseconds",
    errno.EACCES: "run the agent as root",
    errno.EPERM: "run the agent as root",
    errno.EROFS: "mount the cgroup hierarchy writable",
}


class Holder:
    """The best-effort group of one node and what lies below it."""

    def __init__(self, hierarchy: Hierarchy, originals: Originals) -> None:
        self._hierarchy = hierarchy
        self._originals = originals
        self._root = hierarchy.best_effort

    def held(self) -> Bandwidth:
        """What the best-effort group holds now.

        Raises:
            CgroupError: it is not there, or not as it should be.

        """
        return self._read(BEST_EFFORT_ITSELF)

    def hold(self, wanted: Bandwidth) -> None:
        """Make the best-effort group hold ``wanted`` and read it back.

        Raises:
            CgroupError: a write was refused, or the group holds something else afterwards.

        """
        if self._hierarchy.version == 2:
            self._carry_out(plan_v2(self.held(), wanted))
        else:
            self._hold_v1(wanted)
        now = self.held()
        if now != wanted:
            raise CgroupError(str(self._root), f"holds {now} after {wanted} was written; does somebody else write it?")

    def _hold_v1(self, wanted: Bandwidth) -> None:
        """Try with the groups known to be cut; look at all groups below only where the kernel refuses.

        Pods under the best-effort group seldom have a quota of their own, and asking the kernel is
        cheaper than reading some hundred files at each change.
        """
        known = [BEST_EFFORT_ITSELF, *self._originals.clipped]
        try:
            self._attempt_v1(known, wanted)
        except CgroupError as refusal:
            if not (isinstance(refusal.__cause__, OSError) and refusal.__cause__.errno == errno.EINVAL):
                raise
            self._attempt_v1(_groups(self._root), wanted)

    def _attempt_v1(self, groups: Iterable[PurePosixPath], wanted: Bandwidth) -> None:
        held = dict(self._held_by(groups))
        plan = plan_v1(held, wanted, self._originals.clipped)
        self._originals.keep(plan.before)
        self._carry_out(plan.writes)
        self._originals.keep(plan.after)

    def _held_by(self, groups: Iterable[PurePosixPath]) -> Iterator[tuple[PurePosixPath, Bandwidth]]:
        for group in groups:
            try:
                yield group, self._read(group)
            except CgroupError as error:
                if group == BEST_EFFORT_ITSELF or not _is_gone(error):
                    raise

    def _carry_out(self, writes: Iterable[Write]) -> None:
        for write in writes:
            try:
                self._write(write)
            except CgroupError as error:
                # A pod that ended meanwhile needs no limit.
                if write.group == BEST_EFFORT_ITSELF or not _is_gone(error):
                    raise

    def _write(self, write: Write) -> None:
        path = self._root / write.group / write.file
        self._check_allowed(path)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                written = os.write(fd, f"{write.text}\n".encode())
                if os.fstat(fd).st_size > written:  # only a plain file, a virtual node's, keeps an old tail
                    os.ftruncate(fd, written)
            finally:
                os.close(fd)
        except OSError as error:
            raise CgroupError(str(path), f"writing {write.text!r}: {self._explain(path, error)}") from error

    def _check_allowed(self, path: Path) -> None:
        """Nothing but best-effort is ever touched, whatever a message claims."""
        folder = os.path.realpath(path.parent)
        root = os.path.realpath(self._root)
        if path.name not in WRITABLE or ".." in path.parts or os.path.commonpath([folder, root]) != root:
            raise CgroupError(str(path), f"not a limit of the best-effort group {root}: never written")

    def _read(self, group: PurePosixPath) -> Bandwidth:
        folder = self._root / group
        if self._hierarchy.version == 2:
            return Bandwidth(*self._figure(folder / CPU_MAX_FILE, parse.cpu_max))
        quota_us = self._figure(folder / QUOTA_FILE, parse.quota_us)
        return Bandwidth(quota_us, self._figure(folder / PERIOD_FILE, parse.period_us))

    def _figure(self, path: Path, read: Callable[[bytes], _T]) -> _T:
        try:
            return read(path.read_bytes())
        except OSError as error:
            raise CgroupError(str(path), self._explain(path, error)) from error
        except ValueError as error:
            raise CgroupError(str(path), why_of(error)) from error

    def _explain(self, path: Path, error: OSError) -> str:
        """The kernel's word for it, and what to do."""
        hint = _HINTS.get(error.errno or 0, "")
        if error.errno == errno.ENOENT:
            hint = self._explain_absence(path)
        return f"{why_of(error)}: {hint}" if hint else why_of(error)

    def _explain_absence(self, path: Path) -> str:
        if not self._root.is_dir():
            return "no best-effort group here; the kubelet makes it when it starts"
        if path.name != CPU_MAX_FILE:
            return "this group has no CPU limits; is the kernel built with CONFIG_CFS_BANDWIDTH?"
        mount = self._hierarchy.mount
        above = [folder for folder in (path.parent, *path.parent.parents) if folder.is_relative_to(mount)][1:]
        closed = [str(folder / _SUBTREE_CONTROL) for folder in reversed(above) if not _passes_cpu_on(folder)]
        return f"the cpu controller is not enabled for this group: write +cpu to {' and then to '.join(closed)}"


def _passes_cpu_on(folder: Path) -> bool:
    try:
        return b"cpu" in (folder / _SUBTREE_CONTROL).read_bytes().split()
    except OSError:
        return False


def _is_gone(error: CgroupError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _GONE


def _groups(root: Path) -> list[PurePosixPath]:
    """The group itself and all below it, at whatever depth."""
    return [PurePosixPath(os.path.relpath(folder, root)) for folder, _, _ in os.walk(root)]
