"""Sharing CPU time between siblings by weight: the law that the virtual kernel is made of."""

from __future__ import annotations

from collections.abc import Sequence


def share(supply: int, wants: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Share ``supply`` by weight; what one does not want goes to the others (water-filling).

    Exact in whole units: nobody gets more than it wants, and all of ``min(supply, sum(wants))`` is given out.

    Args:
        supply: what there is, e.g. nanoseconds of CPU time.
        wants: what each would take if it were alone, in the same unit.
        weights: one positive weight each.

    """
    if supply >= sum(wants):
        return list(wants)
    gives = [0] * len(wants)
    # Those content with the least per weight first: what they leave raises the level for the rest.
    order = sorted(range(len(wants)), key=lambda place: (wants[place] / weights[place], place))
    left, weights_left = supply, sum(weights)
    for place in order:
        give = min(wants[place], left * weights[place] // weights_left)
        gives[place] = give
        left -= give
        weights_left -= weights[place]
    # Rounding down leaves a few units over.
    for place in order:
        extra = min(left, wants[place] - gives[place])
        gives[place] += extra
        left -= extra
    return gives
