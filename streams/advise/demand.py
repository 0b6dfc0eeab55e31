"""What best-effort pods would use without a limit, from a record in which a limit often held them back.

A sample that was not held back shows the demand. One that was held back shows that the demand was larger: it is
censored. The product-limit estimator (Kaplan and Meier, 1958) uses both.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import msgspec

BUCKETS = 100
"""Steps of CPU use, in percent of the node."""


class Demand(msgspec.Struct, kw_only=True):
    """Of one node: time by use in percent of its capacity, ms."""

    shown: dict[int, int] = {}
    """Not held back: the use is the demand."""
    censored: dict[int, int] = {}
    """Held back: the demand is more than the use."""

    def count(self, use_pct: int, span_ms: int, *, held_back: bool) -> None:
        """Take in one sample."""
        times = self.censored if held_back else self.shown
        times[use_pct] = times.get(use_pct, 0) + span_ms

    def survival(self) -> list[float]:
        """For each percent: the probability that the demand is more than that."""
        at_risk = float(sum(self.shown.values()) + sum(self.censored.values()))
        alive, found = 1.0, []
        for pct in range(BUCKETS + 1):
            ended = self.shown.get(pct, 0)
            if at_risk > 0:
                alive *= 1 - ended / at_risk
            at_risk -= ended + self.censored.get(pct, 0)
            found.append(alive)
        return found


def share_used(demand: Demand, raises: Mapping[tuple[int, int], int]) -> float:
    """Which part of the room above their limit pods would have used, from 0 to 1.

    Beyond the largest demand that the record shows, demand counts as unlimited. With nothing held back: 1.

    Args:
        demand: of the node.
        raises: time by use under the recorded limit and by the most under the other one, in percent.

    """
    alive = demand.survival()
    areas = list(accumulate(alive, initial=0.0))  # up to each percent: the expected use under a limit that high
    gained = most = 0.0
    for (low, high), span_ms in raises.items():
        most += (high - low) * span_ms
        gained += span_ms * ((areas[high] - areas[low]) / alive[low] if alive[low] > 0 else high - low)
    return min(1.0, gained / most) if most else 1.0


def share_over(demand: Demand, crossings: Mapping[tuple[int, int], int]) -> float:
    """In which part of the time in which pods could have passed a line they would have wanted to, from 0 to 1.

    Args:
        demand: of the node.
        crossings: time by use under the recorded limit and by the use that is at the line, in percent.

    """
    alive = demand.survival()
    passed = sum(ms * (alive[line] / alive[use] if alive[use] > 0 else 1.0) for (use, line), ms in crossings.items())
    whole = sum(crossings.values())
    return min(1.0, passed / whole) if whole else 1.0
