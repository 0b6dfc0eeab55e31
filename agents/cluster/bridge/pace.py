"""How often the API server is written to: a budget per node, a share of all nodes each second."""

from __future__ import annotations

import math
from dataclasses import dataclass

NODE_WRITE_S = 120.0
"""One write in so long, on average: 0.5 per node and minute."""
SAVED_MAX = 3.0
"""Writes that a quiet node has saved at most."""
GAP_S = 10.0
"""Between two writes to a node, however urgent: what the first one did has certainly come back by then."""
ROUND_S = 60.0
AT_LEAST = 10


@dataclass(slots=True)
class Budget:
    """What may still be written to one node. Times are monotonic seconds."""

    begun_s: float
    """When the node was first seen, or last written to."""
    saved: float = SAVED_MAX
    written: bool = False

    def since_s(self, now_s: float) -> float:
        """How long ago it was written to, as far as is known."""
        return now_s - self.begun_s

    def allows(self, now_s: float, *, urgent: bool) -> bool:
        """Whether a write may go out now; an urgent one waits for the gap alone."""
        if self.written and self.since_s(now_s) < GAP_S:
            return False
        return urgent or self._saved(now_s) >= 1

    def wrote(self, now_s: float) -> None:
        """A write went out, whatever came of it."""
        self.saved = max(0.0, self._saved(now_s) - 1)
        self.begun_s, self.written = now_s, True

    def _saved(self, now_s: float) -> float:
        return min(SAVED_MAX, self.saved + self.since_s(now_s) / NODE_WRITE_S)


def share(nodes: int, elapsed_s: float = 1.0) -> int:
    """How many of a fleet's nodes may be written to in this time: all of them in a minute, and 10 a second at least."""
    return math.ceil(max(AT_LEAST, nodes / ROUND_S) * elapsed_s)
