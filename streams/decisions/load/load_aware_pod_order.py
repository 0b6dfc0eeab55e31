"""Orders an overloaded node's pods for eviction, by importance, then by how well they cover the excess.

Reading: koordinator a7a1b76b, pkg/descheduler/utils/sorter/pod.go, PodSorter; scorer.go, ResourceUsageScorerPod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from slacktide.schemas.qos import CLASS_RANK, effective_priority_class, effective_qos
from slacktide.streams.decisions.load.load_aware_classify import PlacedPod
from slacktide.streams.decisions.load.load_aware_thresholds import Amounts

_KUBE_QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_QOS_RANK = {"BE": 0, "LS": 1, "LSR": 2, "LSE": 3, "SYSTEM": 3}
Rank: TypeAlias = tuple[object, ...]


def eviction_order(pods: Iterable[PlacedPod], excess: Amounts, weights: Mapping[str, int]) -> list[PlacedPod]:
    """Sort the pods of one node, first victim first. Ties are in order of namespace, name and UID.

    ``excess`` contains only resources above their high thresholds. An absent weight is 0.
    """

    def rank(placed: PlacedPod) -> Rank:
        pod = placed.pod
        return (
            CLASS_RANK[effective_priority_class(pod)],
            pod.priority or 0,
            _KUBE_QOS_RANK.get(pod.kube_qos, _KUBE_QOS_RANK["Burstable"]),
            _QOS_RANK[effective_qos(pod.qos_label, pod.kube_qos)],
            placed.deletion_cost,
            placed.eviction_cost,
            placed.used is None,
            -usage_score(placed.used or {}, excess, weights),
            -placed.created_s,
            (pod.namespace, pod.name, pod.uid),
        )

    return sorted(pods, key=rank)


def usage_score(used: Amounts, excess: Amounts, weights: Mapping[str, int]) -> float:
    """Score how well a pod's usage covers the excess: best exactly, then more, then less.

    Return the weighted mean over the resources in both. Usage below the excess is 0 to 1, the exact excess is 2, and
    more usage falls from 2 towards 1.
    """
    counted = sorted(used.keys() & excess.keys())
    total = sum(weights.get(name, 0) for name in counted)
    if not total:
        return 0.0
    return sum(_cover(used[name], excess[name]) * weights.get(name, 0) for name in counted) / total


def _cover(used: int, excess: int) -> float:
    ratio = float(used) / float(excess)
    return ratio if ratio < 1 else 1 / ratio + 1
