"""Scores a node for a pod by what stays free, 0 to 100.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go, Score and loadAwareSchedulingScorer.
"""

from __future__ import annotations

from typing import NamedTuple

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import NOTHING, RESOURCES, Amounts, LoadAwareArgs, View, Weights
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad

BEST = 100


class Scale(NamedTuple):
    """A node's values that score one kind of pods, valid as long as its load."""

    weights: Weights
    dominant_weight: int
    unknown: str = ""
    existing: Amounts = NOTHING
    allocatable: Amounts = NOTHING


class Scored(NamedTuple):
    """A node's score for a pod. A tuple, because a thousand are made for each pod."""

    score: int
    bound: str
    """``weighted``, or why the score is 0 without arithmetic."""
    scale: Scale
    pod: Amounts = NOTHING
    used: Amounts = NOTHING
    """Usage including the pod."""
    scores: tuple[int, int] = (0, 0)
    dominant_score: int = 0

    @property
    def because(self) -> tuple[Because, ...]:
        """Return each resource's score, then the total."""
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
    """Return a node's values that score production pods, or all others."""
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
    """Compute the weighted mean of the resources' scores. The lowest counts again as the dominant one."""
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
    """Return the free share, 0 to 100. If nothing is allocatable, nothing is free."""
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
