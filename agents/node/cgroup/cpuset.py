"""Sets the best-effort CPU set: reads the cgroups, writes a plan, reads it back."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy
from slacktide.agents.node.cgroup.knobs import Knobs, is_gone
from slacktide.agents.node.cgroup.plan import BEST_EFFORT_ITSELF, CPUSET_FILE
from slacktide.agents.node.cgroup.plan_cpuset import Cpus, plan_cpuset_v1, plan_cpuset_v2
from slacktide.schemas.errors import CgroupError
from slacktide.streams.decisions.cpu_list import cpu_ranges

EFFECTIVE_FILE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}
_ATTEMPTS = 3


class CpusetHolder:
    """The CPU set of the best-effort cgroup and of the cgroups below it.

    Methods raise CgroupError if CPUs cannot be read, a write is refused, or other CPUs read back.
    """

    def __init__(self, hierarchy: Hierarchy, root: Path) -> None:
        self._version = hierarchy.version
        self._pods = root / hierarchy.pods
        self._knobs = Knobs(hierarchy, root / hierarchy.tier(BEST_EFFORT))

    def allowed(self) -> Cpus:
        """Return the CPUs that pods may run on; empty if they cannot be read."""
        for file in (EFFECTIVE_FILE[self._version], CPUSET_FILE):
            try:
                return parse.cpus((self._pods / file).read_bytes())
            except (OSError, ValueError):
                continue
        return frozenset()

    def held(self) -> Cpus | None:
        """Return the CPUs of the best-effort cgroup; None: it has no cpuset controller."""
        try:
            own = self._knobs.read(BEST_EFFORT_ITSELF, CPUSET_FILE, parse.cpus)
            if self._version == 1:
                return own or self._knobs.read(BEST_EFFORT_ITSELF, EFFECTIVE_FILE[1], parse.cpus) or None
        except CgroupError as error:
            if is_gone(error):
                return None
            raise
        # v2 accepts any CPU list. CPUs that the parent lacks are ignored; if none is left, all of the parent's count.
        allowed = self.allowed()
        return own & allowed or allowed or own or None

    def hold(self, wanted: Cpus) -> None:
        """Bind the best-effort cgroup to these CPUs and read them back."""
        if self._version == 2:
            self._knobs.carry_out(plan_cpuset_v2(wanted))
        else:
            self._hold_v1(wanted)
        now = self.held() or frozenset()
        if now != wanted:
            raise CgroupError(
                str(self._knobs.root / CPUSET_FILE),
                f"has CPUs {cpu_ranges(now)} after {cpu_ranges(wanted)} was written; check whether another "
                "process writes it, or has these CPUs exclusively (cpuset.cpus.partition)",
            )

    def _hold_v1(self, wanted: Cpus) -> None:
        """Read again if the kernel refuses because of a cgroup below, since one may have been created meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                self._knobs.carry_out(plan_cpuset_v1(dict(self._held_by_all()), wanted))
            except CgroupError as refusal:
                busy = isinstance(refusal.__cause__, OSError) and refusal.__cause__.errno == errno.EBUSY
                if not busy or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _held_by_all(self) -> Iterator[tuple[PurePosixPath, Cpus]]:
        for group in self._knobs.groups():
            try:
                yield group, self._knobs.read(group, CPUSET_FILE, parse.cpus)
            except CgroupError as error:
                if group == BEST_EFFORT_ITSELF or not is_gone(error):
                    raise
