"""Estimates the unlimited CPU demand of best-effort pods from a trace in which they were often throttled.

A sample without throttling shows the demand. A throttled one shows only a lower bound: it is censored. The
product-limit estimator (Kaplan and Meier, 1958) uses both.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import msgspec

BUCKETS = 100
"""CPU use in percent of the node."""


class Demand(msgspec.Struct, kw_only=True):
    """One node: time by use in percent of its capacity, ms."""

    shown: dict[int, int] = {}
    """Time by use, if not throttled: the use is the demand."""
    censored: dict[int, int] = {}
    """Throttled: demand exceeds use."""

    def count(self, use_pct: int, span_ms: int, *, held_back: bool) -> None:
        """Add one sample."""
        times = self.censored if held_back else self.shown
        times[use_pct] = times.get(use_pct, 0) + span_ms

    def survival(self) -> list[float]:
        """Return the probability of a larger demand for each percent."""
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
    """Return the share of the CPU above their limit that pods would have used, 0 to 1.

    Above the largest observed demand, demand counts as unlimited. Without throttling: 1.

    Args:
        demand: of the node.
        raises: time by use under the recorded limit and maximum use under the other one, in percent.
    """
    alive = demand.survival()
    areas = list(accumulate(alive, initial=0.0))  # up to each percent: the expected use under that limit
    gained = most = 0.0
    for (low, high), span_ms in raises.items():
        most += (high - low) * span_ms
        gained += span_ms * ((areas[high] - areas[low]) / alive[low] if alive[low] > 0 else high - low)
    return min(1.0, gained / most) if most else 1.0


def share_over(demand: Demand, crossings: Mapping[tuple[int, int], int]) -> float:
    """Return the share, 0 to 1, of the time in which pods could exceed a line and would.

    Args:
        demand: of the node.
        crossings: time by use under the recorded limit and use at the line, in percent.
    """
    alive = demand.survival()
    passed = sum(ms * (alive[line] / alive[use] if alive[use] > 0 else 1.0) for (use, line), ms in crossings.items())
    whole = sum(crossings.values())
    return min(1.0, passed / whole) if whole else 1.0
