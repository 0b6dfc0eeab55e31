"""CPU time of all pods that are not best-effort: two files, quick to read many times a second."""

from __future__ import annotations

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import KeptFile, Room
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy

_USAGE_USEC = parse.field(b"usage_usec")


class LatencySensitiveUse:
    """What the pods' group counts less what its best-effort tier does."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        unified = hierarchy.version == 2
        root, name = (hierarchy.cpu, "cpu.stat") if unified else (hierarchy.cpuacct, "cpuacct.usage")
        self._unified = unified
        groups = () if root is None else (hierarchy.pods, hierarchy.tier(BEST_EFFORT))
        self._files = [KeptFile(f"{root}/{group}/{name}", name, Room(1)) for group in groups]
        self._best_effort_ns = 0

    def cpu_ns(self) -> int | None:
        """All CPU time so far; None where it cannot be told, as once when the best-effort group was made anew."""
        try:
            counts_ns = [self._count_ns(file.read()) for file in self._files]
        except (OSError, ValueError):
            return None
        if not counts_ns:
            return None
        before_ns, self._best_effort_ns = self._best_effort_ns, counts_ns[1]
        return None if counts_ns[1] < before_ns else counts_ns[0] - counts_ns[1]

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            file.close()

    def _count_ns(self, text: bytes) -> int:
        return _USAGE_USEC(text) * 1000 if self._unified else parse.number(text)
