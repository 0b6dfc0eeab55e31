"""Whether a node's metric is too old to figure resources by.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, isDegradeNeeded.
"""

from __future__ import annotations

from slacktide.schemas.message import Terms


def degraded(*, now_s: int, updated_s: int | None, degrade_time_min: int) -> Terms | None:
    """The ages that show it; None where the metric is young enough. At the limit it still is, and from the future too.

    Args:
        now_s: the time.
        updated_s: when the node last reported; None: never, or without a time.
        degrade_time_min: the policy's longest age in minutes.

    """
    limit_s = degrade_time_min * 60
    if updated_s is None:
        return {"limit_s": limit_s}
    if now_s > updated_s + limit_s:
        return {"age_s": now_s - updated_s, "limit_s": limit_s}
    return None
