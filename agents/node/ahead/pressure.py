"""PSI files of latency-sensitive cgroups, and triggers on all of them while cgroups come and go.

Cgroups with best-effort pods are not watched. PSI counts throttled processes as stalled, so such a cgroup, and
the whole node, are under pressure whenever best-effort pods are suppressed.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.node.ahead.psi import Stall, Trigger
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.stall import stalling_groups

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
