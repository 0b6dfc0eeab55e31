"""CPU time of all pods that are not best-effort, from two files, many times a second."""

from __future__ import annotations

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy

_USAGE_USEC = parse.field(b"usage_usec")


class LatencySensitiveUse:
    """CPU time of the pods' cgroup minus its best-effort tier."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        unified = hierarchy.version == 2
        root, name = (hierarchy.cpu, "cpu.stat") if unified else (hierarchy.cpuacct, "cpuacct.usage")
        self._count_ns = _usage_ns if unified else parse.number
        self._known = root is not None
        self._pods, self._best_effort = (
            KeptFile(f"{root}/{group}/{name}", name, Room(1)) for group in (hierarchy.pods, hierarchy.tier(BEST_EFFORT))
        )
        self._best_effort_ns = 0

    def cpu_ns(self) -> int | None:
        """Return the total CPU time; None: unknown, as once after the best-effort cgroup was recreated."""
        if not self._known:
            return None
        try:
            pods_ns, best_effort_ns = self._count_ns(self._pods.read()), self._count_ns(self._best_effort.read())
        except (OSError, ValueError):
            return None
        before_ns, self._best_effort_ns = self._best_effort_ns, best_effort_ns
        return None if best_effort_ns < before_ns else pods_ns - best_effort_ns

    @property
    def best_effort_ns(self) -> int:
        """CPU time of the best-effort tier at the last reading."""
        return self._best_effort_ns

    def close(self) -> None:
        """Close the files."""
        self._pods.close()
        self._best_effort.close()


def _usage_ns(text: bytes) -> int:
    return _USAGE_USEC(text) * 1000
