"""Selects pods to evict when CPU is short.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuevict/cpu_evict.go, cpuEvict.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpuWindow
from slacktide.streams.decisions.evict.evict_allocatable import AllocatableThreshold
from slacktide.streams.decisions.evict.evict_candidates import Order, best_effort_by_ratio
from slacktide.streams.decisions.evict.evict_loop import Evictions, EvictTask, evict
from slacktide.streams.decisions.evict.evict_pod import Measure, amount_of
from slacktide.streams.decisions.evict.evict_satisfaction import RESOURCE, by_satisfaction
from slacktide.streams.decisions.evict.evict_tasks import EvictNode, allocatable_task, no_capacity, used_task
from slacktide.streams.decisions.evict.evict_usage import UsageThreshold

MEASURE: Measure = "cpu_milli"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuEvictNode(EvictNode):
    """A node in millicores, with the recent CPU window of best-effort pods."""

    be: BeCpuWindow


def cpu_evict(node: CpuEvictNode, *, features: Collection[str], policy: ResourceThreshold, order: Order) -> Evictions:
    """Run the enabled features in the order BECPUEvict, CPUAllocatableEvict, CPUEvict. Unit: millicores."""
    if node.capacity <= 0:
        return no_capacity()
    return evict([task(name, node, policy, order) for name, task in _IN_TURN.items() if name in features])


def _best_effort(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    sold = node.allocatable.batch_cpu_milli
    release = by_satisfaction(feature, window=node.be, allocatable_milli=sold, policy=policy)
    return EvictTask(
        feature=feature,
        kind="request",
        release=release,
        candidates=best_effort_by_ratio(node.pods, feature=feature, order=order) if release.amounts else (),
        frees=lambda pod: {RESOURCE: amount_of(pod.pod.requests, RESOURCE)},
    )


def _requested(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    at = AllocatableThreshold(
        threshold_pct=policy.cpu_allocatable_evict_threshold_pct,
        lower_pct=policy.cpu_allocatable_evict_lower_pct,
        priority_max=policy.allocatable_evict_priority_threshold,
    )
    return allocatable_task(feature=feature, measure=MEASURE, node=node, at=at, order=order)


def _used(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    at = UsageThreshold(threshold_pct=policy.cpu_evict_threshold_pct, lower_pct=policy.cpu_evict_lower_pct)
    return used_task(
        feature=feature,
        measure=MEASURE,
        node=node,
        at=at,
        priority_max=policy.evict_enabled_priority_threshold,
        order=order,
    )


_IN_TURN = {"BECPUEvict": _best_effort, "CPUAllocatableEvict": _requested, "CPUEvict": _used}
FEATURES = tuple(_IN_TURN)
