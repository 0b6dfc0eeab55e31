"""Computes the amount to release if a node's usage exceeds a percentage of its capacity.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and cpuevict/cpu_evict.go,
the release by used threshold percent.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_pod import Measure
from slacktide.streams.decisions.evict.evict_release import Release, invalid, nothing

LOWER_BELOW_THRESHOLD_PCT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageThreshold:
    """From ``threshold_pct`` of capacity on, usage above ``lower_pct`` (default: 2 less) is released. None: not set."""

    threshold_pct: int | None
    lower_pct: int | None


def by_usage(feature: str, measure: Measure, *, capacity: int, used: int | None, at: UsageThreshold) -> Release:
    """Compute capacity x (used% - lower%), with whole percentages. The capacity is above 0. Without usage: nothing."""
    threshold_pct, lower_pct = at.threshold_pct, at.lower_pct
    if threshold_pct is None or threshold_pct < 0:
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct)
    if lower_pct is None:
        lower_pct = threshold_pct - LOWER_BELOW_THRESHOLD_PCT
    if lower_pct >= threshold_pct:
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct)
    of, unit = f"{feature}/{measure}", measure.rpartition("_")[2]
    terms: Terms = {f"capacity_{unit}": capacity, "threshold_pct": threshold_pct, "lower_pct": lower_pct}
    if used is None:
        return nothing(of, "no_metric", terms)
    used_pct = used * 100 // capacity
    terms |= {f"used_{unit}": used, "used_pct": used_pct}
    if used_pct < threshold_pct:
        return nothing(of, "below_threshold", terms)
    amount = capacity * (used_pct - lower_pct) // 100
    because = Because(of=of, bound="formula", terms=terms | {f"release_{unit}": amount})
    return Release(status="release", amounts={measure: amount}, because=(because,))
