"""Runs one phase of descheduling: evicts from nodes over in one view, while targets have room in it.

Reading: koordinator a7a1b76b, pkg/descheduler: framework/plugins/loadaware/utilization_util.go, balancePods, evictPods,
sortNodesByUsage, podFitsAnyNodeWithThreshold; node/node.go, NodeFit; utils/sorter/pod.go, PodSorter; scorer.go,
ResourceUsageScorerPod. The reference checks node by node, and a placed pod reduces only the target's usage room for the
next pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import CLASS_RANK, effective_priority_class, effective_qos
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_classify import (
    Amounts,
    LoadedNode,
    PlacedPod,
    View,
    ViewedNode,
    with_unit,
)

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


_Spare = dict[tuple[str, str], int]
"""A need or a node's room: a pod slot, and per resource the requested and used amounts."""
_PLACE = ("place", "")


class Targets:
    """The target nodes of one phase, in order. A placed pod keeps its room until the phase ends.

    A tree: each inner node holds its subtree's maximum per kind of room, so the search skips full subtrees.
    """

    def __init__(self, targets: Sequence[tuple[LoadedNode, View]], *, lands: bool = False) -> None:
        """Compute the current room; ``lands``: a placed pod also takes its requests and a slot."""
        self._lands = lands
        self._watched = tuple(dict.fromkeys(name for _, view in targets for name in view.limits.high))
        self._leaves = 1 << len(targets).bit_length()
        """The index of the first leaf. Leaves without a node have no room."""
        self._spare: list[_Spare] = [{} for _ in range(2 * self._leaves)]
        for at, (node, view) in enumerate(targets, self._leaves):
            self._spare[at] = _spare(node, view)
        for at in range(self._leaves - 1, 0, -1):
            self._sum_up(at)

    def take(self, pod: PlacedPod) -> bool:
        """Place the pod on the first target with room; return whether there is one. It needs a metric."""
        if pod.used is None:
            return False
        need = self._need(pod, pod.used)
        at = self._first(1, need)
        if at:
            self._use(at, need)
        return bool(at)

    def _need(self, pod: PlacedPod, used: Amounts) -> _Spare:
        """Return the pod's needs: its requests, and its usage of all watched resources, even if 0."""
        requested = {("requested", name): amount for name, amount in pod.requests.items()}
        return {_PLACE: 1} | requested | {("used", name): used.get(name, 0) for name in self._watched}

    def _first(self, at: int, need: _Spare) -> int:
        """Return the first leaf with room at or below ``at``; 0: none."""
        spare = self._spare[at]
        if any(amount > spare.get(kind, 0) for kind, amount in need.items()):
            return 0
        if at >= self._leaves:
            return at
        return self._first(2 * at, need) or self._first(2 * at + 1, need)

    def _use(self, at: int, need: _Spare) -> None:
        for kind, amount in need.items():
            if self._lands or kind[0] == "used":
                self._spare[at][kind] = self._spare[at].get(kind, 0) - amount
        while at := at // 2:
            self._sum_up(at)

    def _sum_up(self, at: int) -> None:
        left, right = self._spare[2 * at], self._spare[2 * at + 1]
        self._spare[at] = {kind: max(left.get(kind, 0), right.get(kind, 0)) for kind in left | right}


def _spare(node: LoadedNode, view: View) -> _Spare:
    """Return the node's room. A target is always schedulable."""
    spare = {("requested", name): amount for name, amount in node.allocatable.items()}
    for pod in node.live_pods:
        for name, amount in pod.requests.items():
            spare["requested", name] = spare.get(("requested", name), 0) - amount
    used = {("used", name): limit - view.used[name] for name, limit in view.limits.high.items()}
    return spare | used | {_PLACE: node.pods_max - len(node.live_pods)}


Kind = Literal["whole", "prod"]
"""``whole``: all pods count. ``prod``: only production pods count and are evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulingPolicy:
    """Settings of a descheduling pass."""

    too_few_targets: int = 0
    """Act only if more nodes than this have room."""
    node_fit: bool = True
    """Evict only pods that fit a target."""
    lands: bool = False
    """A placed pod takes its requests and a slot from the next pod. In the reference it takes only its usage."""
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    consecutive_abnormalities: int = 5
    """Tolerated consecutive passes in which a node is over; 1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to evict from its node."""

    pod: PlacedPod
    node: str
    because_of_prod: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a phase, or of one of its sources."""

    evictions: tuple[Eviction, ...] = ()
    relieved: tuple[str, ...] = ()
    left: Amounts
    """The remaining budget."""
    because: tuple[Because, ...] = ()


def room(targets: Sequence[ViewedNode], kind: Kind, resources: Sequence[str]) -> dict[str, int]:
    """Sum the targets' room up to their high thresholds; negative if they are over."""
    views = [view_of(node, kind) for node in targets]
    return {name: sum(view.limits.high[name] - view.used[name] for view in views) for name in resources}


def view_of(node: ViewedNode, kind: Kind) -> View:
    """Return the node's view in a phase."""
    return node.prod if kind == "prod" else node.whole


def move(
    kind: Kind,
    sources: Sequence[ViewedNode],
    targets: Sequence[ViewedNode],
    budget: Amounts,
    policy: DeschedulingPolicy,
) -> Moved:
    """Evict pods from the sources, the most loaded first, ties by name, to targets in order of preference.

    ``budget``: the amount that may be moved, for every watched resource.
    """
    if not targets:
        return Moved(left=budget)
    viewed = [(node.node, view_of(node, kind)) for node in targets]
    places = Targets(viewed, lands=policy.lands) if policy.node_fit else None
    scored = [(load_score(node, kind, policy.weights), node) for node in sources]
    left, gave = budget, []
    for score, node in sorted(scored, key=lambda one: (-one[0], one[1].node.name)):
        gave.append(_relieve(kind, node, score, left, places, policy.weights))
        left = gave[-1].left
    return Moved(
        evictions=tuple(eviction for one in gave for eviction in one.evictions),
        relieved=tuple(name for one in gave for name in one.relieved),
        left=left,
        because=tuple(reason for one in gave for reason in one.because),
    )


def load_score(node: ViewedNode, kind: Kind, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of used capacity over the watched resources, 0 to 1000."""
    used, capacity = view_of(node, kind).used, node.node.capacity
    total = sum(weights.get(name, 0) for name in used)
    if not total:
        return 0
    return sum(_per_mille(used[name], capacity.get(name, 0)) * weights.get(name, 0) for name in used) // total


def _per_mille(used: int, capacity: int) -> int:
    return min(used, capacity) * 1000 // capacity if capacity else 0


def _relieve(
    kind: Kind, source: ViewedNode, score: int, budget: Amounts, places: Targets | None, weights: Mapping[str, int]
) -> Moved:
    """Evict pods until the node is no longer over, the budget is spent, or no pod is left."""
    view, left = view_of(source, kind), budget
    candidates = [pod for pod in source.node.pods if _may_leave(pod, kind)]
    removable = eviction_order(_placeable(candidates, places), view.excess, weights)
    leaving: list[PlacedPod] = []
    stopped = "no_more_pods"
    for pod in removable:
        if not view.excess or not all(amount > 0 for amount in left.values()):
            stopped = "budget_spent" if view.excess else "relieved"
            break
        leaving.append(pod)
        # A pod without a metric changes neither usage nor budget.
        view, left = view.minus(pod.used or {}), _less(left, pod.used or {})
    name = source.node.name
    terms: Terms = {
        "score": score,
        "candidate_pods": len(candidates),
        "removable_pods": len(removable),
        **{f"high_{with_unit(resource)}": limit for resource, limit in view.limits.high.items()},
        **{f"used_{with_unit(resource)}": used for resource, used in view.used.items()},
        **{f"budget_{with_unit(resource)}": amount for resource, amount in left.items()},
        "evicted_pods": len(leaving),
    }
    return Moved(
        evictions=tuple(Eviction(pod=pod, node=name, because_of_prod=kind == "prod") for pod in leaving),
        relieved=(name,) if stopped == "relieved" else (),
        left=left,
        because=(Because(of=f"{kind}/sources/{name}", bound=stopped, terms=terms),),
    )


def _may_leave(pod: PlacedPod, kind: Kind) -> bool:
    return pod.evictable and pod.pod.phase in LIVE_PHASES and (kind == "whole" or pod.is_prod)


def _placeable(pods: Sequence[PlacedPod], places: Targets | None) -> Sequence[PlacedPod]:
    """Return the pods that fit the targets, if required. The oldest are placed first in any list order."""
    if places is None:
        return pods
    oldest_first = sorted(pods, key=lambda one: (one.created_s, one.pod.namespace, one.pod.name, one.pod.uid))
    return [pod for pod in oldest_first if places.take(pod)]


def _less(budget: Amounts, used: Amounts) -> Amounts:
    return {name: amount - used.get(name, 0) for name, amount in budget.items()}
