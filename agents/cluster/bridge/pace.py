"""Rate limits for the API server: a budget per node, and a share of all nodes each second."""

from __future__ import annotations

import math
from dataclasses import dataclass

NODE_WRITE_S = 120.0
"""Average interval between writes to a node."""
SAVED_MAX = 3.0
"""Burst of writes per node."""
GAP_S = 10.0
"""Minimum interval between two writes to a node, even if urgent: longer than the watch takes."""
ROUND_S = 60.0
AT_LEAST = 10


@dataclass(slots=True)
class Budget:
    """Write budget of one node. Times are monotonic seconds."""

    begun_s: float
    """When the node was first seen, or last written to."""
    saved: float = SAVED_MAX
    written: bool = False

    def since_s(self, now_s: float) -> float:
        """Time since the last write."""
        return now_s - self.begun_s

    def allows(self, now_s: float, *, urgent: bool) -> bool:
        """Return whether a write is allowed now; an urgent one only waits for the gap."""
        if self.written and self.since_s(now_s) < GAP_S:
            return False
        return urgent or self._saved(now_s) >= 1

    def wrote(self, now_s: float) -> None:
        """Record that a write was tried."""
        self.saved = max(0.0, self._saved(now_s) - 1)
        self.begun_s, self.written = now_s, True

    def _saved(self, now_s: float) -> float:
        return min(SAVED_MAX, self.saved + self.since_s(now_s) / NODE_WRITE_S)


def share(nodes: int, elapsed_s: float = 1.0) -> int:
    """Return how many nodes may be written to in this time: all nodes in a minute, at least 10 a second."""
    return math.ceil(max(AT_LEAST, nodes / ROUND_S) * elapsed_s)
