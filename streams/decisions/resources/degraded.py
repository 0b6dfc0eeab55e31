"""Whether a NodeMetric is too old to compute resources from.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, isDegradeNeeded.
"""

from __future__ import annotations

from slacktide.schemas.message import Terms


def degraded(*, now_s: int, updated_s: int | None, degrade_time_min: int) -> Terms | None:
    """Return the age and its limit, or None if the metric is fresh. A metric at the limit or from the future is fresh.

    Args:
        now_s: the current time.
        updated_s: the time of the last report; None if there is none.
        degrade_time_min: the maximum age in minutes.
    """
    limit_s = degrade_time_min * 60
    if updated_s is None:
        return {"limit_s": limit_s}
    if now_s > updated_s + limit_s:
        return {"age_s": now_s - updated_s, "limit_s": limit_s}
    return None
