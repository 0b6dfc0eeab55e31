"""Filters and scores one node by load for one pod.

Values of a pod are computed once. Values of a node are computed when its report, its pods or the settings change.
Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import Amounts, LoadAwareArgs, Thresholds
from slacktide.streams.decisions.load.load_aware_estimator import Estimate, LoadAwarePod, estimate
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad, expired, is_prod
from slacktide.streams.decisions.load.load_aware_filter import Filtered, Gate, filter_pod, gate_for
from slacktide.streams.decisions.load.load_aware_score import Scale, Scored, scale_for, score_pod


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
        prod = pod.prod
        if prod not in self._met:
            load, allocatable, args = self.load, self.allocatable, self.args
            gate = gate_for(prod=prod, load=load, allocatable=allocatable, custom=self.custom, args=args)
            self._met[prod] = gate, scale_for(prod=prod, load=load, allocatable=allocatable, args=args)
        return self._met[prod]


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
