"""Candidates for eviction: their priority, the resources that an eviction frees, and their order.

Reading: koordinator a7a1b76b, apis/extension/priority_utils.go, GetPodPriorityValueWithDefault;
pkg/koordlet/qosmanager/plugins/util/evict_utils.go, GetRequestTypeAndValueFromPod; memoryevict/memory_evict.go and
cpuevict/cpu_evict.go, getSortedBEPodInfos, getBEPodEvictInfoAndSort, getPodEvictInfoAndSortByPriority. Unlike the
reference, only Running and Pending pods are victims, also for best-effort features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.qos import BANDS, CLASS_RANK, effective_priority_class, raw_qos

Amounts = dict[str, int]
"""Millicores and bytes, by the names of the fields of ``Resources``."""
Measure = Literal["cpu_milli", "mem_bytes"]
"""What a decision is about; also the native resource of that name."""

_DEFAULT_PRIORITY = {name: low + 500 for name, (low, _) in BANDS.items()}
_OWN_PREFIX = {"koord-batch": "batch_", "koord-mid": "mid_"}
_FREE_PREFIX = "free_"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictPod:
    """A candidate for eviction. Candidates compare by identity, not by name."""

    pod: Pod
    used: int | None = None
    """Millicores or bytes of the decision's measure, as last measured; None: no metric."""
    already_evicted: bool = False
    """Evicted in an earlier run, but still present."""
    kept: bool = False
    """A recent eviction failed."""
    spared: bool = False
    """Its requests count, but it is never evicted."""


def priority_with_default(pod: Pod) -> int:
    """Return the pod's priority. Without one, or for 0, return the middle of its class's band."""
    return pod.priority or _DEFAULT_PRIORITY[effective_priority_class(pod)]


def own_resource(pod: Pod, measure: Measure) -> str:
    """Return the resource of the pod's class: native for prod, and for free pods that request no free resources."""
    band = effective_priority_class(pod)
    sold_to_free = _FREE_PREFIX + measure
    if band == "koord-free" and getattr(pod.requests, sold_to_free) is not None:
        return sold_to_free
    return _OWN_PREFIX.get(band, "") + measure


def own_resources(measure: Measure) -> tuple[str, ...]:
    """Return all results of ``own_resource``, in a fixed order."""
    return tuple(prefix + measure for prefix in ("", *_OWN_PREFIX.values(), _FREE_PREFIX))


def amount_of(resources: Resources, name: str) -> int:
    """Return an amount by its name; 0 if it is not declared."""
    amount: int | None = getattr(resources, name)
    return amount or 0


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
