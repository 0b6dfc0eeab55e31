"""Reads what the kernel could reclaim from best-effort pods, and reclaims it. Implements ``ReclaimableMemory``.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst, ``memory.reclaim`` (Linux 5.19 or newer). A write returns
once that much is reclaimed, or with EAGAIN if it was less. It blocks, so it is made in parts with a time limit, and on
a thread of its own. Cgroup v1 has nothing like it: its ``memory.force_empty`` takes all of a cgroup, hot pages too.
"""

import errno
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import Knobs, read_once, risen_us
from slacktide.agents.node.cgroup.hierarchy import Hierarchy, stalling_groups
from slacktide.agents.node.cgroup.plan import BEST_EFFORT_ITSELF, Write
from slacktide.agents.node.interfaces import Reclaim
from slacktide.schemas.errors import CgroupError
from slacktide.streams.decisions.evict.mem_reclaim import MemoryLook, PodMemory

FILE = "memory.reclaim"
PART_BYTES = 16 << 20
"""One write: milliseconds for page cache, and some hundred to a slow swap device."""
_INACTIVE_FILE, _INACTIVE_ANON = parse.field(b"inactive_file"), parse.field(b"inactive_anon")
_FREE, _SWAP_FREE = parse.field(b"MemFree:"), parse.field(b"SwapFree:")


class GroupMemory:
    """Memory of best-effort pods. One thread at a time may use it.

    ``groups`` returns the cgroups of best-effort pods now by uid, relative to the best-effort one. ``checked`` returns
    that of one pod if it may be changed; None: the pod is gone.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        proc_mount: Path,
        groups: Callable[[], Mapping[str, PurePosixPath]],
        checked: Callable[[str], PurePosixPath | None],
    ) -> None:
        self._hierarchy, self._proc, self._groups, self._checked = hierarchy, proc_mount, groups, checked
        self._root = hierarchy.best_effort
        self._knobs = Knobs(hierarchy, hierarchy.best_effort, frozenset({FILE}))
        self._before: tuple[int, Mapping[str, Mapping[str, int]]] | None = None

    @property
    def trouble(self) -> str:
        """Why nothing can be reclaimed on this node; "": it can."""
        if self._hierarchy.version == 1:
            return f"cgroup v1 has no {FILE}: use cgroup v2 on Linux 5.19 or newer"
        if not (self._root / FILE).exists():
            return f"the best-effort cgroup has no {FILE}: use Linux 5.19 or newer, with its memory controller"
        return ""

    def look(self, uids: Collection[str], now_ns: int) -> MemoryLook:
        """Read the node's free memory, stalls since the previous look, and what these pods hold."""
        free_bytes, swap_free_bytes = self._free()
        counted = self._counted_us()
        before, self._before = self._before, (now_ns, counted)
        span_us = 0 if before is None else (now_ns - before[0]) // 1_000
        stalls = {} if before is None or span_us <= 0 else {
            name: risen_us(before[1].get(name, {}), now) * 1_000 // span_us for name, now in counted.items()
        }  # fmt: skip
        groups: Mapping[str, PurePosixPath] = {}
        with suppress(CgroupError):
            groups = self._groups()
        pods = [
            found
            for uid in uids
            if uid in groups and (found := self._pod(uid, groups[uid], swap_free_bytes)) is not None
        ]
        return MemoryLook(
            now_ms=now_ns // 1_000_000,
            span_ms=span_us // 1_000,
            free_bytes=free_bytes,
            swap_free_bytes=swap_free_bytes,
            stalls_permille=stalls,
            pods=pods,
        )

    def reclaim(self, uid: str, ask_bytes: int, *, in_time: Callable[[], bool]) -> Reclaim:
        """Implement ``ReclaimableMemory.reclaim``."""
        group = self._checked(uid)
        if group is None or group == BEST_EFFORT_ITSELF:
            raise CgroupError(uid, "the pod no longer exists")
        swapped, held, done, left, writes = self._swapped(group), self._current(group), 0, ask_bytes, 0
        while left > 0 and (in_time() or not writes):
            part = min(left, PART_BYTES)
            writes, left = writes + 1, left - part
            try:
                self._knobs.write(Write(group, FILE, str(part)))
            except CgroupError as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EAGAIN:
                    raise
                break
            done += part
        freed = max(done, held - self._current(group))  # older kernels reclaim more than they are asked for
        swapped = min(max(0, self._swapped(group) - swapped), freed)
        return Reclaim(freed_bytes=freed, swapped_bytes=swapped, writes=writes, tried_bytes=ask_bytes - left)

    def _free(self) -> tuple[int | None, int]:
        """Return free memory and free swap in bytes, from /proc/meminfo, whose unit is kB."""
        try:
            text = read_once(f"{self._proc}/meminfo").replace(b" kB\n", b"\n")
            return _FREE(text) * 1024, _SWAP_FREE(text) * 1024
        except (OSError, ValueError):
            return None, 0

    def _counted_us(self) -> dict[str, dict[str, int]]:
        """Return stall counters by kind and file. Kinds without a readable file are left out."""
        root = self._hierarchy.unified
        groups = [] if root is None else list(stalling_groups(root, self._hierarchy))
        files = {
            "ls_mem": ([f"{group}/memory.pressure" for group in groups], parse.stall_us),
            "ls_io": ([f"{group}/io.pressure" for group in groups], parse.stall_us),
            "io_full": ([f"{self._proc}/pressure/io"], parse.full_stall_us),
        }
        found: dict[str, dict[str, int]] = {}
        for name, (paths, read) in files.items():
            for path in paths:
                with suppress(OSError, ValueError):
                    found.setdefault(name, {})[path] = read(read_once(path))
        return found

    def _pod(self, uid: str, group: PurePosixPath, swap_free_bytes: int) -> PodMemory | None:
        try:
            text = read_once(f"{self._root}/{group}/memory.stat")
            unused = _INACTIVE_ANON(text) if swap_free_bytes else 0
            swappable = min(unused, swap_free_bytes, self._swap_left(group)) if unused else 0
            return PodMemory(uid=uid, inactive_file_bytes=_INACTIVE_FILE(text), swappable_bytes=swappable)
        except (OSError, ValueError):
            return None

    def _swap_left(self, group: PurePosixPath) -> int:
        """Return what the pod may still swap. A kubelet sets nothing on the pod, and 0 on its containers."""
        with os.scandir(f"{self._root}/{group}") as found:
            containers = [self._swap_left_of(group / one.name) for one in found if one.is_dir()]
        own = self._swap_left_of(group)
        return min(own, sum(containers)) if containers else own

    def _swap_left_of(self, group: PurePosixPath) -> int:
        text = read_once(f"{self._root}/{group}/memory.swap.max").strip()
        return 1 << 62 if text == b"max" else max(0, parse.number(text) - self._swapped(group))

    def _swapped(self, group: PurePosixPath) -> int:
        with suppress(OSError, ValueError):
            return parse.number(read_once(f"{self._root}/{group}/memory.swap.current"))
        return 0

    def _current(self, group: PurePosixPath) -> int:
        try:
            return parse.number(read_once(f"{self._root}/{group}/memory.current"))
        except (OSError, ValueError):
            return 0
