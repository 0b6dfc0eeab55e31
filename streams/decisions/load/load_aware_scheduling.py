"""One pod and one node, filtered and scored by load.

What depends on the node alone is computed when its report, its pods or the settings change, and what
depends on the pod alone once a pod: what is left per pod and node is a few sums.
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
    """A pod that looks for a node."""

    estimate: Estimate
    prod: bool
    daemonset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as candidates meet it."""

    allocatable: Amounts
    """``allocatable_of`` the node."""
    custom: Thresholds
    """Its own."""
    load: ExistingLoad | None
    """None: it never reported."""
    args: LoadAwareArgs
    """The cluster's settings."""
    _met: dict[bool, tuple[Gate, Scale]] = field(default_factory=dict, compare=False)

    def met_by(self, pod: Candidate) -> tuple[Gate, Scale]:
        """What it is checked against and scored by, as all of production are, or all others; found for the first."""
        prod = pod.prod
        if prod not in self._met:
            load, allocatable, args = self.load, self.allocatable, self.args
            gate = gate_for(prod=prod, load=load, allocatable=allocatable, custom=self.custom, args=args)
            self._met[prod] = gate, scale_for(prod=prod, load=load, allocatable=allocatable, args=args)
        return self._met[prod]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Whether the pod may go to the node, and how well it would fit: the score asks nobody whether it may."""

    filtered: Filtered
    scored: Scored

    @property
    def because(self) -> tuple[Because, ...]:
        """The filter's checks, then the score's parts."""
        return (*self.filtered.because, *self.scored.because)


def candidate(asked: LoadAwarePod, args: LoadAwareArgs) -> Candidate:
    """What is to be known of a pod before any node is looked at."""
    return Candidate(estimate=estimate(asked, args), prod=is_prod(asked), daemonset=asked.daemonset)


def allocatable_of(published: Resources, raw: Resources) -> Amounts:
    """What is allocatable, with what it was before it was amplified where the node has that."""

    def first(raw: int | None, published: int | None) -> int:
        return (published or 0) if raw is None else raw

    return Amounts(first(raw.cpu_milli, published.cpu_milli), first(raw.mem_bytes, published.mem_bytes))


def place(pod: Candidate, node: NodeState, args: LoadAwareArgs, *, now_s: float) -> Placement:
    """Filter and score one node for one pod. Who needs only one of the two calls that alone."""
    stale = node.load is not None and expired(node.load.report, now_s, args.expiration_s)
    gate, scale = node.met_by(pod)
    amounts = pod.estimate.amounts
    return Placement(
        filtered=filter_pod(amounts, gate, args, daemonset=pod.daemonset, stale=stale),
        scored=score_pod(amounts, scale, stale=stale),
    )
