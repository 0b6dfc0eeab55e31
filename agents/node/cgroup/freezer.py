"""Freezes and thaws best-effort pods: the freezer controller of v1, ``cgroup.freeze`` of v2."""

from __future__ import annotations

from pathlib import PurePosixPath

from slacktide.agents.clock import wait_ms
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy
from slacktide.agents.node.cgroup.knobs import Knobs, is_gone
from slacktide.agents.node.cgroup.plan import Write
from slacktide.schemas.errors import CgroupError

FILES = {1: "freezer.state", 2: "cgroup.freeze"}
_TEXTS = {1: ("THAWED", "FROZEN"), 2: ("0", "1")}
_OWN = {1: "freezer.self_freezing", 2: "cgroup.freeze"}
"""The file that shows whether the cgroup itself is frozen, and not only a parent."""
_LOOKS = 50
_APART_MS = 2


class Freezer:
    """Cgroups are relative to the best-effort cgroup. Methods raise CgroupError if the kernel refuses or cannot."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._version = hierarchy.version
        self._mount = hierarchy.mount
        root = hierarchy.freezer
        self._knobs = (
            None
            if root is None
            else Knobs(hierarchy, root / hierarchy.tier(BEST_EFFORT), frozenset({FILES[self._version]}))
        )

    @property
    def trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""
        if self._knobs is None:
            return f"the freezer controller is not mounted under {self._mount}"
        if not self._knobs.root.is_dir():
            return f"no best-effort cgroup in the freezer hierarchy: {self._knobs.root}"
        if not (self._knobs.root / FILES[self._version]).exists():
            return f"the kernel has no {FILES[self._version]}: use kernel 5.2 or newer"
        return ""

    def is_frozen(self, group: PurePosixPath) -> bool:
        """Return whether this cgroup itself is frozen. False if it cannot be frozen."""
        if self._knobs is None:
            return False
        try:
            return self._knobs.read(group, _OWN[self._version], parse.number) == 1
        except CgroupError as error:
            if is_gone(error):
                return False
            raise

    def freeze(self, group: PurePosixPath) -> bool:
        """Freeze a cgroup. False: some processes freeze later, when a system call returns."""
        self._write(group, frozen=True)
        for look in range(_LOOKS):
            if self._all_stopped(group):
                return True
            if look < _LOOKS - 1:
                wait_ms(_APART_MS)
        return False

    def thaw(self, group: PurePosixPath) -> None:
        """Thaw a cgroup. One that is gone is ignored. One that still reads as frozen raises CgroupError."""
        try:
            self._write(group, frozen=False)
        except CgroupError as error:
            if not is_gone(error):
                raise
        if self.is_frozen(group):
            raise CgroupError(str(group), "is frozen after it was thawed; check whether another process freezes it")

    def thaw_below(self, group: PurePosixPath) -> None:
        """Thaw a cgroup and all cgroups below, because v1 cannot kill frozen processes."""
        if self._knobs is not None:
            for one in self._knobs.groups():
                if one.is_relative_to(group):
                    self.thaw(one)

    def _write(self, group: PurePosixPath, *, frozen: bool) -> None:
        if self._knobs is None:
            raise CgroupError(str(self._mount), self.trouble)
        self._knobs.write(Write(group, FILES[self._version], _TEXTS[self._version][frozen]))

    def _all_stopped(self, group: PurePosixPath) -> bool:
        assert self._knobs is not None
        if self._version == 1:
            return self._knobs.read(group, FILES[1], bytes.strip) == b"FROZEN"
        return self._knobs.read(group, "cgroup.events", parse.field(b"frozen")) == 1
