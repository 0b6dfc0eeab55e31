"""Scores the utilization or balance of a zone with a request.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/least_allocated.go, most_allocated.go and
balanced_allocation.go. The order of floating-point operations is the reference's: it affects the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from slacktide.streams.decisions.numa.resource import CPU, Amounts
from slacktide.streams.decisions.numa.topology import Zone

SCORE_MAX = 100
Allocation = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation"]


def request_score(
    request: Amounts,
    zones: Sequence[Zone],
    strategy: Allocation,
    weights: Mapping[str, int],
    *,
    corrected: bool = False,
) -> int:
    """Return the smallest zone score above 0; 0 if there is none.

    ``request`` includes zeros. ``BalancedAllocation`` ignores weights; missing ones and those below 1 count as 1.
    Corrected: CPU in millicores; the reference rounds it up to whole cores.
    """
    per_cpu = 1 if corrected else 1000
    scores = (_zone_score(request, zone.available, strategy, weights, per_cpu) for zone in zones)
    return min((score for score in scores if score), default=0)


def _zone_score(
    request: Amounts, available: Amounts, strategy: Allocation, weights: Mapping[str, int], per_cpu: int
) -> int:
    if strategy == "BalancedAllocation":
        return _balance([_fraction(request, available, name, per_cpu) for name in sorted(request)])
    scores = {name: _share(request, available, name, strategy, per_cpu) for name in request}
    weight_of = {name: max(weights.get(name, 1), 1) for name in request}
    total = sum(weight_of.values())
    return sum(weight_of[name] * score for name, score in scores.items()) // total if total else 0


def _share(request: Amounts, available: Amounts, name: str, strategy: Allocation, per_cpu: int) -> int:
    free = available.get(name, 0)
    if not free or request[name] > free:
        return 0
    asked, capacity = (_whole(name, amount, per_cpu) for amount in (request[name], free))
    return (capacity - asked if strategy == "LeastAllocated" else asked) * SCORE_MAX // capacity


def _fraction(request: Amounts, available: Amounts, name: str, per_cpu: int) -> float:
    capacity = _whole(name, available.get(name, 0), per_cpu)
    return _whole(name, request[name], per_cpu) / capacity if capacity else 1.0


def _balance(fractions: Sequence[float]) -> int:
    """Return 100 minus the sample variance of the used fractions; 100 for a single resource."""
    if any(one > 1.0 for one in fractions):
        return 0
    count = len(fractions)
    if count < 2:
        return SCORE_MAX
    mean = sum(fractions) / count
    squares = sum((one - mean) * (one - mean) for one in fractions)
    rest = sum(one - mean for one in fractions)
    return int((1.0 - (squares - rest * rest / count) / (count - 1)) * SCORE_MAX)


def _whole(name: str, amount: int, per_cpu: int) -> int:
    return -(-amount // per_cpu) if name == CPU else amount
