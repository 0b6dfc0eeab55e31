"""One pod and one node, filtered and scored by load.

What depends on the node alone is computed when its report, its pods or the settings change, and what
depends on the pod alone once a pod: what is left per pod and node is a few sums.
Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load_aware_args import Amounts, LoadAwareArgs, Thresholds
from slacktide.streams.decisions.load_aware_estimator import Estimate, LoadAwarePod, estimate
from slacktide.streams.decisions.load_aware_existing import ExistingLoad, expired, is_prod
from slacktide.streams.decisions.load_aware_filter import Filtered, Gate, filter_pod, gate_for
from slacktide.streams.decisions.load_aware_score import Scale, Scored, scale_for, score_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod that looks for a node."""

    estimate: Estimate
    prod: bool
    daemonset: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as candidates meet it; for production, and for all others."""

    load: ExistingLoad | None
    prod_gate: Gate
    other_gate: Gate
    prod_scale: Scale
    other_scale: Scale


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
    """What is allocatable, with what it was before it was amplified where the node says so."""

    def first(raw: int | None, published: int | None) -> int:
        return (published or 0) if raw is None else raw

    return Amounts(first(raw.cpu_milli, published.cpu_milli), first(raw.mem_bytes, published.mem_bytes))


def node_state(
    *, allocatable: Amounts, custom: Thresholds, load: ExistingLoad | None, args: LoadAwareArgs
) -> NodeState:
    """Choose thresholds and views for each kind of pods.

    Args:
        allocatable: ``allocatable_of`` the node.
        custom: the node's own thresholds.
        load: None if the node never reported.
        args: the cluster's settings.

    """
    return NodeState(
        load=load,
        prod_gate=gate_for(prod=True, load=load, allocatable=allocatable, custom=custom, args=args),
        other_gate=gate_for(prod=False, load=load, allocatable=allocatable, custom=custom, args=args),
        prod_scale=scale_for(prod=True, load=load, allocatable=allocatable, args=args),
        other_scale=scale_for(prod=False, load=load, allocatable=allocatable, args=args),
    )


def place(pod: Candidate, node: NodeState, args: LoadAwareArgs, *, now_s: float) -> Placement:
    """Filter and score one node for one pod. Who needs only one of the two calls that alone."""
    stale = node.load is not None and expired(node.load.report, now_s, args.expiration_s)
    gate, scale = (node.prod_gate, node.prod_scale) if pod.prod else (node.other_gate, node.other_scale)
    amounts = pod.estimate.amounts
    return Placement(
        filtered=filter_pod(amounts, gate, args, daemonset=pod.daemonset, stale=stale),
        scored=score_pod(amounts, scale, stale=stale),
    )
