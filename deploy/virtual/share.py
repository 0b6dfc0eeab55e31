"""Shares CPU time among siblings by weight: the rule of the virtual kernel."""

from __future__ import annotations

from collections.abc import Sequence


def share(supply: int, wants: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide ``supply`` by weight. Unused parts are divided among the others (water-filling).

    Exact in whole units: each share is at most its demand, and ``min(supply, sum(wants))`` is distributed.

    Args:
        supply: the total, e.g. nanoseconds of CPU time.
        wants: the demands, in the same unit.
        weights: positive, one per demand.
    """
    if supply >= sum(wants):
        return list(wants)
    gives = [0] * len(wants)
    # Lowest demand per weight first: the rest raises the level for the others.
    order = sorted(range(len(wants)), key=lambda place: (wants[place] / weights[place], place))
    left, weights_left = supply, sum(weights)
    for place in order:
        give = min(wants[place], left * weights[place] // weights_left)
        gives[place] = give
        left -= give
        weights_left -= weights[place]
    # Distribute the remainder of rounding down.
    for place in order:
        extra = min(left, wants[place] - gives[place])
        gives[place] += extra
        left -= extra
    return gives
