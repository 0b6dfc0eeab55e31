"""Selects pods to evict when memory is short.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go, memoryEvict.
"""

from __future__ import annotations

from collections.abc import Collection

from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.streams.decisions.evict.evict_candidates import Measure, Order, best_effort_by_memory
from slacktide.streams.decisions.evict.evict_tasks import (
    AllocatableThreshold,
    Evictions,
    EvictNode,
    EvictTask,
    UsageThreshold,
    allocatable_task,
    by_usage,
    evict,
    no_capacity,
    used,
    used_task,
)

MEASURE: Measure = "mem_bytes"


def memory_evict(node: EvictNode, *, features: Collection[str], policy: ResourceThreshold, order: Order) -> Evictions:
    """Run the enabled features in the order BEMemoryEvict, MemoryAllocatableEvict, MemoryEvict. Unit: bytes."""
    if node.capacity <= 0:
        return no_capacity()
    return evict([task(name, node, policy, order) for name, task in _IN_TURN.items() if name in features])


def _best_effort(feature: str, node: EvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    release = by_usage(feature, MEASURE, capacity=node.capacity, used=node.used, at=_threshold(policy))
    return EvictTask(
        feature=feature,
        kind="used",
        release=release,
        candidates=best_effort_by_memory(node.pods, feature=feature, order=order) if release.amounts else (),
        frees=lambda pod: {MEASURE: used(pod)},
    )


def _requested(feature: str, node: EvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    at = AllocatableThreshold(
        threshold_pct=policy.mem_allocatable_evict_threshold_pct,
        lower_pct=policy.mem_allocatable_evict_lower_pct,
        priority_max=policy.allocatable_evict_priority_threshold,
    )
    return allocatable_task(feature=feature, measure=MEASURE, node=node, at=at, order=order)


def _used(feature: str, node: EvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    return used_task(
        feature=feature,
        measure=MEASURE,
        node=node,
        at=_threshold(policy),
        priority_max=policy.evict_enabled_priority_threshold,
        order=order,
        # A pod without usage frees nothing. Only BEMemoryEvict evicts it, as in the reference.
        helps=used,
    )


def _threshold(policy: ResourceThreshold) -> UsageThreshold:
    return UsageThreshold(threshold_pct=policy.mem_evict_threshold_pct, lower_pct=policy.mem_evict_lower_pct)


_IN_TURN = {"BEMemoryEvict": _best_effort, "MemoryAllocatableEvict": _requested, "MemoryEvict": _used}
FEATURES = tuple(_IN_TURN)
