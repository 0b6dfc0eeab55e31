"""Builds the tasks that CPU and memory eviction share: release by node usage and by requests.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and cpuevict/cpu_evict.go,
buildEvictTask. Unlike the reference, used memory counts once, not 1000-fold. A pod whose request frees nothing of the
amount to release is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_allocatable import AllocatableThreshold, by_allocatable
from slacktide.streams.decisions.evict.evict_candidates import Candidates, Order, by_priority
from slacktide.streams.decisions.evict.evict_loop import Evictions, EvictTask
from slacktide.streams.decisions.evict.evict_pod import Amounts, EvictPod, Measure, amount_of, own_resource
from slacktide.streams.decisions.evict.evict_release import invalid
from slacktide.streams.decisions.evict.evict_usage import UsageThreshold, by_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictNode:
    """A node in the unit of the measure: millicores for CPU, bytes for memory."""

    capacity: int
    used: int | None
    """None: no metric."""
    allocatable: Resources
    pods: Sequence[EvictPod]
    """All pods of the node, in any phase."""


def used_task(
    *,
    feature: str,
    measure: Measure,
    node: EvictNode,
    at: UsageThreshold,
    priority_max: int | None,
    order: Order,
    helps: Callable[[EvictPod], object] = lambda _: True,
) -> EvictTask:
    """Build a task that releases usage by pods that pass ``helps``. Without ``priority_max`` it is invalid."""
    candidates: Candidates = ()
    if priority_max is None:
        release = invalid(feature, threshold_pct=at.threshold_pct, lower_pct=at.lower_pct)
    else:
        release = by_usage(feature, measure, capacity=node.capacity, used=node.used, at=at)
        if release.amounts:
            helping = filter(helps, node.pods)
            candidates = by_priority(helping, feature=feature, priority_max=priority_max, amount=used, order=order)
    return EvictTask(
        feature=feature, kind="used", release=release, candidates=candidates, frees=lambda pod: {measure: used(pod)}
    )


def allocatable_task(
    *, feature: str, measure: Measure, node: EvictNode, at: AllocatableThreshold, order: Order
) -> EvictTask:
    """Build a task that releases requests above allocatable, for each class's own resource."""
    release = by_allocatable(feature, measure, allocatable=node.allocatable, pods=node.pods, at=at)

    def frees(pod: EvictPod) -> Amounts:
        resource = own_resource(pod.pod, measure)
        return {resource: amount_of(pod.pod.requests, resource)} if release.amounts.get(resource) else {}

    def freed(pod: EvictPod) -> int:
        return sum(frees(pod).values())

    candidates: Candidates = ()
    if at.priority_max is not None:
        helping = filter(freed, node.pods)
        candidates = by_priority(helping, feature=feature, priority_max=at.priority_max, amount=freed, order=order)
    return EvictTask(feature=feature, kind="request", release=release, candidates=candidates, frees=frees)


def used(pod: EvictPod) -> int:
    """Return the pod's usage; 0 if unknown."""
    return pod.used or 0


def no_capacity() -> Evictions:
    """Return no victims, because a node without capacity is not known well enough."""
    because = Because(of="evicted_pods", bound="no_capacity", terms={"evicted_pods": 0})
    return Evictions(tasks=(), victims=(), because=(because,))
