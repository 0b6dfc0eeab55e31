"""Which pod leaves an overloaded node first: the least important one, and among equals the one that just suffices.

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
    """The pods of one node, first victim first.

    Pods that the rule holds for equal go by namespace, name and UID, so that the order they come in does not matter.

    Args:
        pods: Of the node.
        excess: By how much the node is over its high thresholds, for the resources it is over in.
        weights: How much each resource counts; an absent one does not.
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
    """How well the pod's leaving would end the excess: best what just covers it, then more, then less.

    The weighted mean, over the resources that both the pod's metric has and the node is over in, of a value from 0
    (nothing) towards 1 (almost the excess), 2 (the excess) and from there down towards 1 (far more).
    """
    counted = sorted(used.keys() & excess.keys())
    total = sum(weights.get(name, 0) for name in counted)
    if not total:
        return 0.0
    return sum(_cover(used[name], excess[name]) * weights.get(name, 0) for name in counted) / total


def _cover(used: int, excess: int) -> float:
    ratio = float(used) / float(excess)
    return ratio if ratio < 1 else 1 / ratio + 1
