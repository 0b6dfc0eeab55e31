"""How well a pod would fit on a node: what stays free there, 0 to 100.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go, Score and
loadAwareSchedulingScorer.
"""

from __future__ import annotations

from typing import NamedTuple

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import NOTHING, RESOURCES, Amounts, LoadAwareArgs, View, Weights
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad

BEST = 100


class Scale(NamedTuple):
    """What one kind of pods is scored by on a node, for as long as the node's load holds."""

    weights: Weights
    dominant_weight: int
    unknown: str = ""
    """Why the load is not known: ``no_metric``, ``no_node_usage``; "": it is."""
    existing: Amounts = NOTHING
    allocatable: Amounts = NOTHING


class Scored(NamedTuple):
    """The node's score for the pod. A tuple, for it is made a thousand times for each pod."""

    score: int
    bound: str
    """``weighted``, or why the score is 0 without arithmetic."""
    scale: Scale
    pod: Amounts = NOTHING
    used: Amounts = NOTHING
    """With the pod."""
    scores: tuple[int, int] = (0, 0)
    """Of each resource."""
    dominant_score: int = 0
    """Of the scarcest."""

    @property
    def because(self) -> tuple[Because, ...]:
        """Each resource's score, then the total: the numbers that were computed, in words."""
        if self.bound != "weighted":
            return (Because(of="score", bound=self.bound, terms={}),)
        terms: Terms = {}
        for (name, _), score, weight in zip(RESOURCES, self.scores, self.scale.weights, strict=True):
            terms |= {f"{name}_score": score, f"{name}_weight": weight}
        terms |= {
            "dominant_score": self.dominant_score,
            "dominant_weight": self.scale.dominant_weight,
            "score": self.score,
        }
        return (_because(self, 0), _because(self, 1), Because(of="score", bound=self.bound, terms=terms))


def scale_for(*, prod: bool, load: ExistingLoad | None, allocatable: Amounts, args: LoadAwareArgs) -> Scale:
    """What pods of production, or all others, are scored by on a node.

    Args:
        prod: which of the two.
        load: the node's, None if it never reported.
        allocatable: of the node.
        args: the cluster's settings.

    """
    dominant_weight = args.dominant_weight
    weights = args.weights
    if weights is None:
        weights = Weights() if dominant_weight else Weights(cpu=1, mem=1)
    if load is None:
        return Scale(weights=weights, dominant_weight=dominant_weight, unknown="no_metric")
    if load.report.node is None:
        return Scale(weights=weights, dominant_weight=dominant_weight, unknown="no_node_usage")
    view: View = "prod" if prod and args.score_prod else args.score_aggregation or "node"
    return Scale(weights=weights, dominant_weight=dominant_weight, existing=load.seen(view), allocatable=allocatable)


def score_pod(estimate: Amounts, scale: Scale, *, stale: bool) -> Scored:
    """The weighted mean of the resources' scores, the lowest of them weighing in once more as the dominant one.

    Args:
        estimate: what the pod is expected to use.
        scale: what pods of its kind are scored by there.
        stale: there is a report, and it is ``expired``.

    """
    cpu_weight, mem_weight = scale.weights
    weight = cpu_weight + mem_weight + scale.dominant_weight
    if not weight:
        return Scored(0, "no_weights", scale)
    if stale:
        return Scored(0, "node_metric_expired", scale)
    if scale.unknown:
        return Scored(0, scale.unknown, scale)
    cpu_used = scale.existing.cpu_milli + estimate.cpu_milli
    mem_used = scale.existing.mem_bytes + estimate.mem_bytes
    cpu = _free_share(cpu_used, scale.allocatable.cpu_milli)
    mem = _free_share(mem_used, scale.allocatable.mem_bytes)
    dominant = min(cpu, mem)
    score = (cpu * cpu_weight + mem * mem_weight + dominant * scale.dominant_weight) // weight
    return Scored(score, "weighted", scale, estimate, Amounts(cpu_used, mem_used), (cpu, mem), dominant)


def _free_share(used: int, allocatable: int) -> int:
    """0 to 100; where nothing is allocatable, nothing is free."""
    return 0 if used > allocatable or not allocatable else (allocatable - used) * BEST // allocatable


def _because(scored: Scored, resource: int) -> Because:
    name, unit = RESOURCES[resource]
    used, allocatable = scored.used[resource], scored.scale.allocatable[resource]
    full = "full" if used > allocatable else "free"
    terms: Terms = {
        f"existing_{unit}": scored.scale.existing[resource],
        f"pod_{unit}": scored.pod[resource],
        f"used_{unit}": used,
        f"allocatable_{unit}": allocatable,
        f"{name}_score": scored.scores[resource],
    }
    return Because(of=f"score/{name}", bound=full if allocatable else "nothing_allocatable", terms=terms)
