"""How much to release where pods up to a priority requested more than a percent of what their classes are sold.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and
cpuevict/cpu_evict.go, the release by allocatable threshold percent. Different on purpose: native CPU is
millicores like all other, where the reference stores it as cores.
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
"""Nobody above mid is evicted for what was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableThreshold:
    """Above ``threshold_pct`` of a resource's allocatable, what exceeds ``lower_pct`` of it is to be released.

    None: not configured.
    """

    threshold_pct: int | None
    lower_pct: int | None
    priority_max: int | None
    """Pods above it neither count nor are evicted."""


def by_allocatable(
    feature: str, measure: Measure, *, allocatable: Resources, pods: Iterable[EvictPod], at: AllocatableThreshold
) -> Release:
    """Per resource: what its pods requested less the lower percent of what the node sells of it.

    Args:
        feature: who asks.
        measure: CPU or memory; every pod counts for its own class's resource of it.
        allocatable: what the node sells; of a resource it does not sell, all that was requested is released.
        pods: all of the node, in any phase.
        at: the percents, and whose requests count.

    """
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
    """Sums by resource, in a fixed order; a resource that no pod counts for is left out."""
    sums: Amounts = {}
    for evictable in pods:
        pod = evictable.pod
        if priority_with_default(pod) <= priority_max:
            resource = own_resource(pod, measure)
            sums[resource] = sums.get(resource, 0) + amount_of(pod.requests, resource)
    return {resource: sums[resource] for resource in own_resources(measure) if resource in sums}


def _over(measure: Measure, requested: int, sold: int, threshold: float, lower: float) -> tuple[str, int | None]:
    """Bound and amount. The two measures differ in the order of the doubles' arithmetic, as in the reference."""
    if not sold:
        return "not_sold", requested
    share = requested / sold
    if share <= threshold:
        return "below_threshold", None
    return "formula", int((share - lower) * sold if measure == "mem_bytes" else requested - lower * sold)
