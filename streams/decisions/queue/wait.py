"""Estimates the wait of a pending workload as an interval, from its position and recent admissions.

Admissions are assumed to be independent, at an unchanged rate. Both ends are bounds at 90%, of the rate and of the
arrival of the admission. Quantiles of the gamma distribution are approximated after Wilson and Hilferty (1931).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

WINDOW_S = 3_600
Z_90 = 1.2816
"""Quantile of the normal distribution: 10% are above it."""
State = Literal["interval", "unknown", "never"]


class Wait(NamedTuple):
    """The estimated wait."""

    state: State
    reason: str = ""
    least_s: int = 0
    most_s: int = 0


def wait(position: int, admitted_count: int, *, blocked_by: str = "", window_s: int = WINDOW_S) -> Wait:
    """Estimate the wait at a position (1: next) by the admissions in the window.

    ``blocked_by``: why the last try failed; "": it was not tried, or may be retried immediately.
    """
    if blocked_by == "ExceedsMaxQuota":
        return Wait("never", "it asks for more than its ClusterQueue could ever use")
    if blocked_by:
        return Wait("unknown", f"it waits for quota: {blocked_by}")
    if not admitted_count:
        return Wait("unknown", f"nothing was admitted in the last {window_s} s")
    fast = _quantile(admitted_count + 1, Z_90) / window_s
    slow = _quantile(admitted_count, -Z_90) / window_s
    return Wait("interval", "", int(_quantile(position, -Z_90) / fast), math.ceil(_quantile(position, Z_90) / slow))


def _quantile(shape: int, z: float) -> float:
    """Return a quantile of a gamma distribution with a scale of 1; above 0."""
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return shape * max(root, 0.01) ** 3
