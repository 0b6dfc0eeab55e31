"""How long a workload that waits will wait: an interval, from its position and the admissions of late.

Admissions are taken as independent of one another and as frequent as they were. Both ends are bounds at 90%: one of
how often workloads were admitted, one of when the last of those ahead and the workload itself follow. Quantiles of
the gamma distribution are those of Wilson and Hilferty (1931).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

WINDOW_S = 3_600
"""Admissions of so long are counted."""
Z_90 = 1.2816
"""Of the normal distribution: 10% lie beyond it on either side of these intervals' halves."""
State = Literal["interval", "unknown", "never"]


class Wait(NamedTuple):
    """How long it will wait."""

    state: State
    reason: str = ""
    """Why there is no interval."""
    least_s: int = 0
    most_s: int = 0


def wait(position: int, admitted_count: int, *, blocked_by: str = "", window_s: int = WINDOW_S) -> Wait:
    """The estimate for a workload.

    Args:
        position: in its ClusterQueue; 1: it is next.
        admitted_count: workloads that the ClusterQueue admitted in the window.
        blocked_by: why the workload was not admitted when it was tried last; "": it was not tried, or may be tried
            again at once.
        window_s: seconds that the window spans.

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
    """Of a gamma distribution with a scale of 1; more than 0."""
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return shape * max(root, 0.01) ** 3
