"""Computes the amount to release if pods' requests exceed a percentage of allocatable, per resource.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and cpuevict/cpu_evict.go,
the release by allocatable threshold percent. Unlike the reference, native CPU is in millicores, not in cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import BANDS
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_pod import (
    Amounts,
    EvictPod,
    Measure,
    amount_of,
    own_resource,
    own_resources,
    priority_with_default,
)
from slacktide.streams.decisions.evict.evict_release import Release, invalid, nothing

PRIORITY_MAX = BANDS["koord-mid"][1]
"""Pods above the mid band are never evicted because of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableThreshold:
    """Above ``threshold_pct`` of allocatable, requests above ``lower_pct`` are released. None: not configured."""

    threshold_pct: int | None
    lower_pct: int | None
    priority_max: int | None
    """Pods above it do not count and are not evicted."""


def by_allocatable(
    feature: str, measure: Measure, *, allocatable: Resources, pods: Iterable[EvictPod], at: AllocatableThreshold
) -> Release:
    """Compute the requests minus ``lower_pct`` of allocatable, for each class's resource; all without allocatable."""
    threshold_pct, lower_pct, priority_max = at.threshold_pct, at.lower_pct, at.priority_max
    if (
        threshold_pct is None
        or lower_pct is None
        or priority_max is None
        or threshold_pct < 0
        or lower_pct >= threshold_pct
        or priority_max > PRIORITY_MAX
    ):
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct, priority_max=priority_max)
    requested = _requested(pods, measure, priority_max)
    amounts: Amounts = {}
    because = []
    for resource, sum_requested in requested.items():
        terms: Terms = {"threshold_pct": threshold_pct, "lower_pct": lower_pct}
        sold = amount_of(allocatable, resource)
        bound, amount = _over(measure, sum_requested, sold, threshold_pct / 100, lower_pct / 100)
        unit = measure.rpartition("_")[2]
        terms |= {f"allocatable_{unit}": sold, f"requested_{unit}": sum_requested}
        if amount is not None:
            amounts[resource] = amount
            terms[f"release_{unit}"] = amount
        because.append(Because(of=f"{feature}/{resource}", bound=bound, terms=terms))
    if not because:
        return nothing(feature, "no_pods", {"priority_max": priority_max})
    return Release(status="release" if amounts else "nothing_to_release", amounts=amounts, because=tuple(because))


def _requested(pods: Iterable[EvictPod], measure: Measure, priority_max: int) -> Amounts:
    """Sum the requests by resource in a fixed order. Omit resources that no pod counts for."""
    sums: Amounts = {}
    for evictable in pods:
        pod = evictable.pod
        if priority_with_default(pod) <= priority_max:
            resource = own_resource(pod, measure)
            sums[resource] = sums.get(resource, 0) + amount_of(pod.requests, resource)
    return {resource: sums[resource] for resource in own_resources(measure) if resource in sums}


def _over(measure: Measure, requested: int, sold: int, threshold: float, lower: float) -> tuple[str, int | None]:
    """Return bound and amount. Each measure keeps the reference's order of floating-point arithmetic."""
    if not sold:
        return "not_sold", requested
    share = requested / sold
    if share <= threshold:
        return "below_threshold", None
    return "formula", int((share - lower) * sold if measure == "mem_bytes" else requested - lower * sold)
