"""Filters one node by the load that it would have with a pod, and scores it by what stays free, 0 to 100.

Values of a pod are computed once. Values of a node are computed when its report, its pods or the settings change.
Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go, Filter, filterNodeUsage, Score,
loadAwareSchedulingScorer; helper.go, generateUsageThresholdsFilterProfile.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_estimator import (
    NOTHING,
    RESOURCES,
    Aggregation,
    Amounts,
    Estimate,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
    View,
    Weights,
    estimate,
    round_half_away,
)
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad, expired, is_prod

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
        return (_of_score(self, 0), _of_score(self, 1), Because(of="score", bound=self.bound, terms=terms))


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


def _of_score(scored: Scored, resource: int) -> Because:
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


DEFAULT_THRESHOLDS = Percents(cpu_pct=65, mem_pct=95)
EXPIRED = "node_metric_expired"


class Limit(NamedTuple):
    """A node's load of one resource, and its threshold."""

    resource: int
    """Index in ``RESOURCES``."""
    existing: int
    allocatable: int
    threshold_pct: int


class Check(NamedTuple):
    """A limit checked with a pod."""

    limit: Limit
    pod: int
    estimated: int
    used_pct: int


class Gate(NamedTuple):
    """A node's limits for one kind of pods, valid as long as its load."""

    off: bool
    """No threshold is set."""
    unknown: str = ""
    """Why the load is unknown: ``no_metric``, ``no_node_usage``; "": known."""
    limits: tuple[Limit, ...] = ()
    """Resources with a threshold and an allocatable amount."""
    reason: str = ""
    key: str = ""
    """The name of the thresholds in the settings, such as ``usageThresholds``."""
    own: bool = False
    """The thresholds are the node's own, not the cluster's."""


class Filtered(NamedTuple):
    """The filter's result. A tuple, because a thousand are made for each pod."""

    reject_reason: str | None
    bound: str
    """``pass``, the reject reason, or why nothing was checked."""
    checks: tuple[Check, ...] = ()
    """All checks, up to the one that rejects."""

    @property
    def schedulable(self) -> bool:
        """Return whether the node accepts the pod."""
        return self.reject_reason is None

    @property
    def because(self) -> tuple[Because, ...]:
        """Return each check's arithmetic, or why nothing was checked."""
        if not self.checks:
            return (Because(of="schedulable", bound=self.bound, terms={}),)
        bounds = ["pass"] * (len(self.checks) - 1) + [self.bound]
        found = []
        for check, bound in zip(self.checks, bounds, strict=True):
            limit = check.limit
            name, unit = RESOURCES[limit.resource]
            terms: Terms = {
                f"existing_{unit}": limit.existing,
                f"pod_{unit}": check.pod,
                f"estimated_{unit}": check.estimated,
                f"allocatable_{unit}": limit.allocatable,
                "threshold_pct": limit.threshold_pct,
                "used_pct": check.used_pct,
            }
            found.append(Because(of=f"schedulable/{name}", bound=bound, terms=terms))
        return tuple(found)


def filter_pod(estimate: Amounts, gate: Gate, args: LoadAwareArgs, *, daemonset: bool, stale: bool) -> Filtered:
    """Check a node's limits with a pod. The first exceeded limit is the reject reason.

    A DaemonSet's pod passes regardless of the load. ``stale`` means that the report exists and is ``expired``.
    """
    if daemonset:
        return Filtered(None, "daemonset")
    if gate.off:
        return Filtered(None, "no_thresholds")
    if stale and args.filter_expired:
        return Filtered(None if args.schedule_when_expired else EXPIRED, EXPIRED)
    if gate.unknown:
        return Filtered(None, gate.unknown)
    checks: tuple[Check, ...] = ()
    for limit in gate.limits:
        pod = estimate[limit.resource]
        estimated = limit.existing + pod
        used_pct = round_half_away(float(estimated) / float(limit.allocatable) * 100)
        checks = (*checks, Check(limit, pod, estimated, used_pct))
        if used_pct > limit.threshold_pct:
            reason = f"{gate.reason}:{RESOURCES[limit.resource].name}"
            return Filtered(reason, reason, checks)
    return Filtered(None, "pass", checks)


def _chosen(custom: Thresholds, configured: Thresholds, *, prod: bool) -> tuple[Percents, View, bool]:
    """Return thresholds, their view, and whether they are the node's own, which override the cluster's by kind.

    Production thresholds apply if one is not 0. Otherwise, those of a statistic precede those of plain usage.
    """
    own = configured.prod if custom.prod is None else custom.prod
    if prod and own is not None and any(own):
        return own, "prod", custom.prod is not None
    for given in (custom, configured):
        if given.aggregated is not None and given.aggregation is not None:
            return given.aggregated, given.aggregation, given is custom
    for given in (custom, configured):
        if given.usage is not None:
            return given.usage, "node", given is custom
    return DEFAULT_THRESHOLDS, "node", False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod to schedule."""

    estimate: Estimate
    prod: bool
    daemonset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node's state for all candidates."""

    allocatable: Amounts
    custom: Thresholds
    """The node's own thresholds."""
    load: ExistingLoad | None
    args: LoadAwareArgs
    _met: dict[bool, tuple[Gate, Scale]] = field(default_factory=dict, compare=False)

    def met_by(self, pod: Candidate) -> tuple[Gate, Scale]:
        """Return the pod's gate and scale, cached for production pods and for all others."""
        met = self._met.get(pod.prod)
        if met is None:
            met = self._met[pod.prod] = self._gate(prod=pod.prod), self._scale(prod=pod.prod)
        return met

    @property
    def _unknown(self) -> str:
        if self.load is None:
            return "no_metric"
        return "no_node_usage" if self.load.report.node is None else ""

    def _gate(self, *, prod: bool) -> Gate:
        thresholds, view, own = _chosen(self.custom, self.args.thresholds, prod=prod)
        off = not any(thresholds)
        if self.load is None or self._unknown:
            return Gate(off=off, unknown=self._unknown)
        existing, allocatable = self.load.seen(view), self.allocatable
        limits = tuple(
            Limit(resource, existing[resource], allocatable[resource], threshold_pct)
            for resource, threshold_pct in enumerate(thresholds)
            if threshold_pct and allocatable[resource]
        )
        reason, key = "usage_exceeds_threshold", "prodUsageThresholds" if view == "prod" else "usageThresholds"
        if isinstance(view, Aggregation):
            reason, key = "aggregated_usage_exceeds_threshold", "aggregatedUsage.usageThresholds"
        return Gate(off=off, limits=limits, reason=reason, key=key, own=own)

    def _scale(self, *, prod: bool) -> Scale:
        args = self.args
        weights = args.weights or Weights()
        if args.weights is None and not args.dominant_weight:
            weights = Weights(cpu=1, mem=1)
        if self.load is None or self._unknown:
            return Scale(weights, args.dominant_weight, unknown=self._unknown)
        view: View = "prod" if prod and args.score_prod else args.score_aggregation or "node"
        return Scale(weights, args.dominant_weight, existing=self.load.seen(view), allocatable=self.allocatable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The filter's result and the score, which is independent of it."""

    filtered: Filtered
    scored: Scored

    @property
    def because(self) -> tuple[Because, ...]:
        """Return the filter's checks, then the score's parts."""
        return (*self.filtered.because, *self.scored.because)


def candidate(asked: LoadAwarePod, args: LoadAwareArgs) -> Candidate:
    """Compute what depends only on the pod."""
    return Candidate(estimate=estimate(asked, args), prod=is_prod(asked), daemonset=asked.daemonset)


def allocatable_of(published: Resources, raw: Resources) -> Amounts:
    """Return the raw amounts from before amplification, or the published ones if the node has none."""

    def first(raw: int | None, published: int | None) -> int:
        return (published or 0) if raw is None else raw

    return Amounts(first(raw.cpu_milli, published.cpu_milli), first(raw.mem_bytes, published.mem_bytes))


def place(pod: Candidate, node: NodeState, args: LoadAwareArgs, *, now_s: float) -> Placement:
    """Filter and score one node for one pod."""
    stale = node.load is not None and expired(node.load.report, now_s, args.expiration_s)
    gate, scale = node.met_by(pod)
    amounts = pod.estimate.amounts
    return Placement(
        filtered=filter_pod(amounts, gate, args, daemonset=pod.daemonset, stale=stale),
        scored=score_pod(amounts, scale, stale=stale),
    )
