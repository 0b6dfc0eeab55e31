"""Who may be evicted, the first victim first.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go and
cpuevict/cpu_evict.go, getSortedBEPodInfos, getBEPodEvictInfoAndSort, getPodEvictInfoAndSortByPriority.
Different on purpose: only what runs or waits to run is a victim, also for the best-effort features.
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
    """Slacktide's own orders, each over the reference's."""

    dying_first: bool = False
    """Pods that were evicted already come before all others: what they free counts before anybody new goes."""
    free_first: bool = False
    """Pods of class koord-free go before all others."""
    classes_first: bool = False
    """Free pods go before batch pods, and these before mid pods, whatever their priorities."""
    sub_priority: bool = False
    """The label koordinator.sh/priority orders best-effort pods of one numeric priority."""

    def before_all(self, candidate: EvictPod) -> tuple[bool, bool, int]:
        """False sorts before True."""
        dying = self.dying_first and candidate.already_evicted
        rank = CLASS_RANK[effective_priority_class(candidate.pod)]
        if not self.classes_first:
            rank = min(rank, 1) if self.free_first else 0
        return not dying, candidate.kept, rank

    def best_effort_rank(self, candidate: EvictPod) -> tuple[bool, bool, int, int, int]:
        """Numeric priority as it is: none is 0, no class's default."""
        sub = _sub_priority(candidate) if self.sub_priority else 0
        return *self.before_all(candidate), candidate.pod.priority or 0, sub


def best_effort_by_memory(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """By priority; then the most memory first, and those of unknown use last, by name descending."""
    # Two stable sorts: the first orders only those of unknown use.
    by_name = sorted(_best_effort(pods, feature), key=lambda one: "" if one.used else one.pod.name, reverse=True)
    return tuple(sorted(by_name, key=lambda one: (*order.best_effort_rank(one), -(one.used or 0))))


def best_effort_by_ratio(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """By priority; then who uses the most of the batch CPU it requested. Ties keep the pods' order."""
    return tuple(sorted(_best_effort(pods, feature), key=lambda one: (*order.best_effort_rank(one), -_used_ratio(one))))


def by_priority(
    pods: Iterable[EvictPod],
    *,
    feature: str,
    priority_max: int,
    amount: Callable[[EvictPod], int],
    order: Order,
) -> Candidates:
    """Pods that allow it, have a metric and are not above a priority, whatever their QoS.

    By eviction priority, priority and sub-priority, all ascending; then the largest amount first. Ties keep the
    pods' order.

    Args:
        pods: of the node, those that would free something.
        feature: who asks.
        priority_max: the highest priority, with defaults, that may be evicted.
        amount: what a pod's end would free.
        order: who goes before that.

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
    """The label alone makes it best-effort here: a Kubernetes QoS class does not."""
    return (pod for pod in pods if raw_qos(pod.pod.qos_label) == "BE" and _may_go(pod, feature))


def _may_go(pod: EvictPod, feature: str) -> bool:
    allowed = pod.pod.eviction_features is None or feature in pod.pod.eviction_features
    return allowed and not pod.spared and pod.pod.phase in LIVE_PHASES


def _sub_priority(candidate: EvictPod) -> int:
    """The label; without it the pod's own priority."""
    label = candidate.pod.sub_priority
    return priority_with_default(candidate.pod) if label is None else label


def _used_ratio(candidate: EvictPod) -> float:
    requested = amount_of(candidate.pod.requests, "batch_cpu_milli")
    return (candidate.used or 0) / requested if requested else 0.0
