"""The features that CPU and memory have in common: by the node's use, and by what pods requested.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and
cpuevict/cpu_evict.go, buildEvictTask. Different on purpose: used memory counts once, not 1000-fold, and a pod
whose request frees nothing of what is to be released is no candidate.
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
    """A node as one decision sees it: millicores if that is about CPU, bytes if it is about memory."""

    capacity: int
    used: int | None
    """None: no metric."""
    allocatable: Resources
    """What is sold, by class."""
    pods: Sequence[EvictPod]
    """All of the node, in any phase."""


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
    """Releases what is used, by ending pods up to a priority that help; without that priority it is not configured."""
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
    """Releases what pods requested beyond what the node sells, each class's own resource."""
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
    """What the pod is known to use."""
    return pod.used or 0


def no_capacity() -> Evictions:
    """A node without capacity is not known well enough to evict anybody."""
    because = Because(of="evicted_pods", bound="no_capacity", terms={"evicted_pods": 0})
    return Evictions(tasks=(), victims=(), because=(because,))
