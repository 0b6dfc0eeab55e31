"""Runs one phase of descheduling: evicts from nodes over in one view, while targets have room in it.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/utilization_util.go, balancePods,
evictPods, sortNodesByUsage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_classify import PlacedPod, View, ViewedNode
from slacktide.streams.decisions.load.load_aware_node_fit import Targets
from slacktide.streams.decisions.load.load_aware_pod_order import eviction_order
from slacktide.streams.decisions.load.load_aware_thresholds import Amounts, with_unit

Kind = Literal["whole", "prod"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The sources, targets and settings of one phase."""

    kind: Kind
    """``whole``: all pods count. ``prod``: only production pods count and are evicted."""
    sources: Sequence[ViewedNode]
    targets: Sequence[ViewedNode]
    """In order of preference."""
    budget: Amounts
    """The amount that may be moved, for every watched resource."""
    node_fit: bool
    lands: bool
    weights: Mapping[str, int]


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


def move(phase: Phase) -> Moved:
    """Evict pods from the sources, the most loaded first, ties by name."""
    if not phase.targets:
        return Moved(left=phase.budget)
    targets = [(node.node, view_of(node, phase.kind)) for node in phase.targets]
    places = Targets(targets, lands=phase.lands) if phase.node_fit else None
    scored = [(load_score(node, phase.kind, phase.weights), node) for node in phase.sources]
    left, gave = phase.budget, []
    for score, node in sorted(scored, key=lambda one: (-one[0], one[1].node.name)):
        gave.append(_relieve(node, score, left, places, phase))
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


def _relieve(source: ViewedNode, score: int, budget: Amounts, places: Targets | None, phase: Phase) -> Moved:
    """Evict pods until the node is no longer over, the budget is spent, or no pod is left."""
    view, left = view_of(source, phase.kind), budget
    candidates = [pod for pod in source.node.pods if _may_leave(pod, phase.kind)]
    removable = eviction_order(_placeable(candidates, places), view.excess, phase.weights)
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
        evictions=tuple(Eviction(pod=pod, node=name, because_of_prod=phase.kind == "prod") for pod in leaving),
        relieved=(name,) if stopped == "relieved" else (),
        left=left,
        because=(Because(of=f"{phase.kind}/sources/{name}", bound=stopped, terms=terms),),
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
