"""``slacktide calc load_aware_scheduling``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given, GivenResources, Seconds
from slacktide.deploy.cli.calc.load.load_aware_case import (
    GivenArgs,
    GivenLoadAwarePod,
    GivenReport,
    GivenThresholds,
    amounts_out,
    below,
    existing_out,
)
from slacktide.streams.decisions.load.load_aware_existing import AssignCache
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState, allocatable_of, candidate, place


class GivenNode(Given, frozen=True, kw_only=True):
    """A node and its own thresholds."""

    name: str = ""
    allocatable: GivenResources | None = None
    raw_allocatable: GivenResources | None = None
    custom_usage_thresholds: GivenThresholds | None = None


class Input(Given, frozen=True, kw_only=True):
    """A pod to place, a node with its pods and report, and the settings."""

    now_seconds: Seconds
    args: GivenArgs | None = None
    node: GivenNode
    node_metric: GivenReport | None = None
    assigned_pods: list[GivenLoadAwarePod] | None = None
    pod: GivenLoadAwarePod


def calculate(given: Input) -> Calculated:
    """Filter and score a node for a pod."""
    args, node = (given.args or GivenArgs()).args, given.node
    cache = AssignCache(args=args, report=given.node_metric.report if given.node_metric else None)
    for assigned in given.assigned_pods or ():
        cache.assign(assigned.asked, at_s=given.now_seconds)
    load = cache.load()
    state = NodeState(
        allocatable=allocatable_of(node.allocatable or GivenResources(), node.raw_allocatable or GivenResources()),
        custom=(node.custom_usage_thresholds or GivenThresholds()).thresholds,
        load=load,
        args=args,
    )
    pod = candidate(given.pod.asked, args)
    placement = place(pod, state, args, now_s=given.now_seconds)
    return Calculated(
        output={
            "schedulable": placement.filtered.schedulable,
            "reject_reason": placement.filtered.reject_reason,
            "score": placement.scored.score,
            "pod_estimate": amounts_out(pod.estimate.amounts),
            **existing_out(load),
        },
        because=[*below("pod_estimate", pod.estimate.because), *(load.because if load else ()), *placement.because],
    )
