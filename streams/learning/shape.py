"""How the logarithm of a slowdown grows with the share of a node's CPU that best-effort pods use. Pure.

Either straight, or bent: most of the growth comes with the first percent, as where a 99th percentile meets best-effort
work as soon as it runs for more than 1% of the time. A slope is the growth up to a whole node in both.
"""

from math import expm1, log, log1p
from typing import Final

from slacktide.schemas.service import Shape

BEND: Final = 0.01
"""A bent slowdown grows by 15% of its slope up to this share of a node, and by 15% more each time it doubles."""
BUDGET: Final = log(1.25)
"""Of the default ``interferenceBudgetPercent``."""
SHARE_MIN: Final = 0.001
"""A smaller share of a node is none."""


def bent(share: float) -> float:
    """Return the part of a bent growth that a share of a node's CPU has: 0 at none, 1 at a whole node."""
    return log1p(max(0.0, share) / BEND) / log1p(1 / BEND)


def growth(shape: Shape, slope: float, share: float) -> float:
    """Return the logarithm of the slowdown at a share of a node's CPU."""
    return slope * (bent(share) if shape == "bent" else share)


def share_at(shape: Shape, slope: float, logarithm: float) -> float:
    """Return the share of a node's CPU at which a slowdown is reached, for a slope above 0; above 1: never."""
    part = logarithm / slope
    return BEND * expm1(log1p(1 / BEND) * min(part, 2.0)) if shape == "bent" else part


def line_slope(shape: Shape, slope: float) -> float:
    """Return the slope of the straight line that has a slowdown of 25% at the same share: what nodes use.

    Under a smaller budget than 25%, a bent service exceeds it; under a larger one, it stays below.
    """
    return slope if slope <= BUDGET else BUDGET / max(SHARE_MIN, share_at(shape, slope, BUDGET))
