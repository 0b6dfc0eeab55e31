"""Selects and orders candidates for eviction.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and
cpuevict/cpu_evict.go, getSortedBEPodInfos, getBEPodEvictInfoAndSort, getPodEvictInfoAndSortByPriority.
Unlike the reference, only Running and Pending pods are victims, also for best-effort features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.qos import CLASS_RANK, effective_priority_class, raw_qos
from slacktide.streams.decisions.evict.evict_pod import EvictPod, amount_of, priority_with_default

Candidates = tuple[EvictPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Slacktide's own orders, each applied before the reference's."""

    dying_first: bool = False
    """Pods already evicted sort first, so that their resources count before any new eviction."""
    free_first: bool = False
    """koord-free pods are evicted first."""
    classes_first: bool = False
    """Evict free pods first, then batch, then mid, regardless of priority."""
    sub_priority: bool = False
    """The label koordinator.sh/priority orders best-effort pods of one numeric priority."""

    def before_all(self, candidate: EvictPod) -> tuple[bool, bool, int]:
        """Return the sort key; False sorts before True."""
        dying = self.dying_first and candidate.already_evicted
        rank = CLASS_RANK[effective_priority_class(candidate.pod)]
        if not self.classes_first:
            rank = min(rank, 1) if self.free_first else 0
        return not dying, candidate.kept, rank

    def best_effort_rank(self, candidate: EvictPod) -> tuple[bool, bool, int, int, int]:
        """Return the sort key with the pod's own priority; a missing one is 0."""
        sub = _sub_priority(candidate) if self.sub_priority else 0
        return *self.before_all(candidate), candidate.pod.priority or 0, sub


def best_effort_by_memory(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """Sort by priority, then by memory descending. Pods of unknown usage are last, by name descending."""
    # Two stable sorts: the first orders only those of unknown use.
    by_name = sorted(_best_effort(pods, feature), key=lambda one: "" if one.used else one.pod.name, reverse=True)
    return tuple(sorted(by_name, key=lambda one: (*order.best_effort_rank(one), -(one.used or 0))))


def best_effort_by_ratio(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """Sort by priority, then by used share of requested batch CPU, descending. Ties keep the pods' order."""
    return tuple(sorted(_best_effort(pods, feature), key=lambda one: (*order.best_effort_rank(one), -_used_ratio(one))))


def by_priority(
    pods: Iterable[EvictPod], *, feature: str, priority_max: int, amount: Callable[[EvictPod], int], order: Order
) -> Candidates:
    """Select evictable pods of any QoS with a metric and a priority of at most ``priority_max``.

    Sort by ``order``, eviction priority, priority and sub-priority, ascending; then by freed ``amount``, descending.
    """
    eligible = (
        pod
        for pod in pods
        if _may_go(pod, feature)
        and pod.pod.eviction_enabled
        and pod.used is not None
        and priority_with_default(pod.pod) <= priority_max
    )
    return tuple(
        sorted(
            eligible,
            key=lambda one: (
                order.before_all(one),
                one.pod.eviction_priority,
                priority_with_default(one.pod),
                _sub_priority(one),
                -amount(one),
            ),
        )
    )


def _best_effort(pods: Iterable[EvictPod], feature: str) -> Iterable[EvictPod]:
    """Select best-effort pods by label, not by Kubernetes QoS class."""
    return (pod for pod in pods if raw_qos(pod.pod.qos_label) == "BE" and _may_go(pod, feature))


def _may_go(pod: EvictPod, feature: str) -> bool:
    allowed = pod.pod.eviction_features is None or feature in pod.pod.eviction_features
    return allowed and not pod.spared and pod.pod.phase in LIVE_PHASES


def _sub_priority(candidate: EvictPod) -> int:
    """Return the sub-priority label, or the pod's priority without one."""
    label = candidate.pod.sub_priority
    return priority_with_default(candidate.pod) if label is None else label


def _used_ratio(candidate: EvictPod) -> float:
    requested = amount_of(candidate.pod.requests, "batch_cpu_milli")
    return (candidate.used or 0) / requested if requested else 0.0
