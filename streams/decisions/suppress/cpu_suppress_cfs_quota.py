"""Computes the next CFS quota of the best-effort group from the allowed CPU.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go, adjustByCfsQuota.
Unlike the reference, a small target is applied if no quota is set.
"""

from __future__ import annotations

import msgspec

from slacktide.schemas.message import Terms

PERIOD_US = 100_000
QUOTA_US_MIN = 2_000


class QuotaStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The quota to apply, per 100 ms period."""

    quota_us: int
    bound: str
    """``target``, ``floored``, ``stepped`` (a raise is limited to 10% of the node) or ``bypassed``."""
    terms: Terms


def next_cfs_quota(*, allowed_milli: int, current_us: int | None, capacity_milli: int) -> QuotaStep:
    """Compute one step toward the allowed CPU: up by at most 10% of the node, down at once. A None is unlimited."""
    node_us = -(-capacity_milli // 1000) * PERIOD_US
    target_us = max(allowed_milli * PERIOD_US // 1000, QUOTA_US_MIN)
    terms: Terms = {"allowed_milli": allowed_milli, "target_us": target_us}
    if current_us is None:
        return QuotaStep(quota_us=target_us, bound="floored" if target_us == QUOTA_US_MIN else "target", terms=terms)
    terms["current_us"] = current_us
    if abs(target_us - current_us) < node_us * 0.01 and target_us != QUOTA_US_MIN:
        return QuotaStep(quota_us=current_us, bound="bypassed", terms=terms | {"bypass_below_us": int(node_us * 0.01)})
    if target_us - current_us > node_us * 0.1:
        step_us = int(node_us * 0.1)
        return QuotaStep(quota_us=current_us + step_us, bound="stepped", terms=terms | {"step_us_max": step_us})
    return QuotaStep(quota_us=target_us, bound="floored" if target_us == QUOTA_US_MIN else "target", terms=terms)
