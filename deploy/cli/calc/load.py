"""Cases of the rules of load-aware scheduling, which share the settings, the pods and the reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import (
    Amount,
    Calculated,
    Given,
    GivenPod,
    GivenResources,
    GivenUse,
    Percent,
    Seconds,
    because,
    into,
)
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_estimator import (
    Aggregation,
    Amounts,
    Factors,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
    Weights,
    estimate,
)
from slacktide.streams.decisions.load.load_aware_existing import (
    REPORT_INTERVAL_S,
    AssignCache,
    ExistingLoad,
    NodeReport,
    NodeUse,
    PodUse,
)
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState, allocatable_of, candidate, place
from slacktide.streams.decisions.load.pod_placement import NodeView, PlacementArgs, asking, choose

PerResource = dict[str, Percent | None]
"""Percent per resource; an empty map counts as absent."""
Share = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


_NOTHING = GivenUse()


class GivenFactors(Given, frozen=True, kw_only=True, rename={"cpu_pct": "cpu", "mem_pct": "memory"}):
    """Percent per resource."""

    cpu_pct: Share | None = None
    mem_pct: Share | None = None


class GivenLoadAwarePod(GivenPod, frozen=True, kw_only=True):
    """A pod object with values derived from its annotations, conditions and owner."""

    custom_scaling_factors: GivenFactors | None = None
    custom_estimated_seconds_after_pod_scheduled: Seconds | None = None
    custom_estimated_seconds_after_initialized: Seconds | None = None
    scheduled_time_seconds: Seconds | None = None
    initialized_time_seconds: Seconds | None = None
    owned_by_daemonset: bool | None = None

    @property
    def asked(self) -> LoadAwarePod:
        """Convert to the rule's type."""
        return LoadAwarePod(
            pod=self,
            custom_factors=into(Factors, self.custom_scaling_factors or GivenFactors()),
            custom_after_scheduled_s=self.custom_estimated_seconds_after_pod_scheduled,
            custom_after_initialized_s=self.custom_estimated_seconds_after_initialized,
            scheduled_s=self.scheduled_time_seconds,
            initialized_s=self.initialized_time_seconds,
            daemonset=bool(self.owned_by_daemonset),
        )


class GivenStatistic(Given, frozen=True, kw_only=True):
    """An aggregated usage of the node."""

    type: str
    duration_seconds: Seconds | None = None
    usage: GivenUse | None = None


class GivenPodUse(Given, frozen=True, kw_only=True):
    """A pod's usage as the agent reported it."""

    namespace: str = "default"
    name: str = ""
    priority_class: str | None = None
    usage: GivenUse | None = None


class GivenReport(Given, frozen=True, kw_only=True):
    """A NodeMetric."""

    update_time_seconds: Seconds | None = None
    report_interval_seconds: Seconds | None = None
    node_level_missing: bool | None = None
    node_usage: GivenUse | None = None
    system_usage: GivenUse | None = None
    aggregated_node_usage: list[GivenStatistic] | None = None
    pod_metrics: list[GivenPodUse] | None = None

    @property
    def report(self) -> NodeReport:
        """Convert to the rule's type. The last entry of a key wins; an empty usage counts as absent."""
        interval_s = self.report_interval_seconds
        return NodeReport(
            updated_s=self.update_time_seconds,
            interval_s=REPORT_INTERVAL_S if interval_s is None else interval_s,
            node=None if self.node_level_missing else self._node(),
            pods={
                (pod.namespace, pod.name): PodUse(_amounts(pod.usage), pod.priority_class == "koord-prod")
                for pod in self.pod_metrics or ()
                if pod.usage is not None and pod.usage != _NOTHING
            },
        )

    def _node(self) -> NodeUse:
        return NodeUse(
            use=_amounts(self.node_usage),
            system=_amounts(self.system_usage),
            aggregated={
                Aggregation(one.type, one.duration_seconds or 0): _amounts(one.usage)
                for one in self.aggregated_node_usage or ()
                if one.usage is not None and one.usage != _NOTHING
            },
        )


class GivenAggregated(Given, frozen=True, kw_only=True):
    """Thresholds and scores by an aggregated usage of the node."""

    usage_thresholds: PerResource | None = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration_seconds: Seconds | None = None
    score_aggregation_type: str | None = None
    score_aggregated_duration_seconds: Seconds | None = None


class GivenThresholds(Given, frozen=True, kw_only=True):
    """Thresholds by kind: the cluster's, or the node's own."""

    usage_thresholds: PerResource | None = None
    prod_usage_thresholds: PerResource | None = None
    aggregated: GivenAggregated | None = None

    @property
    def thresholds(self) -> Thresholds:
        """Convert to the rule's type."""
        aggregated = self.aggregated or GivenAggregated()
        return Thresholds(
            usage=_percents(self.usage_thresholds),
            prod=_percents(self.prod_usage_thresholds),
            aggregated=_percents(aggregated.usage_thresholds),
            aggregation=_aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration_seconds),
        )


_ARGS = {
    "filter_expired": "filter_expired_node_metrics",
    "expiration_s": "node_metric_expiration_seconds",
    "schedule_when_expired": "enable_schedule_when_node_metrics_expired",
    "dominant_weight": "dominant_resource_weight",
    "score_prod": "score_according_prod_usage",
    "prod_include_system": "prod_usage_include_system",
    "allow_customize": "allow_customize_estimation",
    "after_scheduled_s": "estimated_seconds_after_pod_scheduled",
    "after_initialized_s": "estimated_seconds_after_initialized",
}


class GivenArgs(GivenThresholds, frozen=True, kw_only=True, rename=_ARGS):
    """The cluster's settings; absent ones have their defaults."""

    filter_expired: bool | None = None
    expiration_s: Seconds | None = None
    schedule_when_expired: bool | None = None
    resource_weights: dict[str, Amount | None] | None = None
    dominant_weight: Amount | None = None
    prod_include_system: bool | None = None
    score_prod: bool | None = None
    estimated_scaling_factors: GivenFactors | None = None
    after_scheduled_s: Seconds | None = None
    after_initialized_s: Seconds | None = None
    allow_customize: bool | None = None
    free_class_enable: bool | None = None

    @property
    def args(self) -> LoadAwareArgs:
        """Convert to the rule's type."""
        weights, aggregated = self.resource_weights, self.aggregated or GivenAggregated()
        return into(
            LoadAwareArgs,
            self,
            thresholds=self.thresholds,
            weights=Weights(weights.get("cpu") or 0, weights.get("memory") or 0) if weights else None,
            score_aggregation=_aggregation(
                aggregated.score_aggregation_type, aggregated.score_aggregated_duration_seconds
            ),
            factors=into(Factors, self.estimated_scaling_factors or GivenFactors()),
        )


def amounts_out(amounts: Amounts) -> dict[str, int]:
    """Return the amounts in the result's format."""
    return {"cpu_milli": amounts.cpu_milli, "memory_bytes": amounts.mem_bytes}


def existing_out(load: ExistingLoad | None) -> dict[str, object]:
    """Return both views of a node's load; null without a report."""
    return {
        "existing_estimated_all": load and amounts_out(load.everyone),
        "existing_estimated_prod": load and amounts_out(load.prod),
    }


def below(path: str, because: Iterable[Because]) -> list[Because]:
    """Prefix the figures' names with a path."""
    return [replace(one, of=f"{path}/{one.of}") for one in because]


def _amounts(use: GivenUse | None) -> Amounts:
    return into(Amounts, use or _NOTHING)


def _percents(per_resource: PerResource | None) -> Percents | None:
    return Percents(per_resource.get("cpu") or 0, per_resource.get("memory") or 0) if per_resource else None


def _aggregation(kind: str | None, duration_s: int | None) -> Aggregation | None:
    return Aggregation(kind, duration_s or 0) if kind else None


class LoadAwareEstimatorInput(Given, frozen=True, kw_only=True):
    """A pod, and the settings of the estimate."""

    estimated_scaling_factors: GivenFactors | None = None
    allow_customize_estimation: bool | None = None
    free_class_enable: bool | None = None
    pod: GivenLoadAwarePod


def calc_load_aware_estimator(given: LoadAwareEstimatorInput) -> Calculated:
    """Estimate the use of a pod."""
    args = GivenArgs(
        estimated_scaling_factors=given.estimated_scaling_factors,
        allow_customize=given.allow_customize_estimation,
        free_class_enable=given.free_class_enable,
    )
    estimated = estimate(given.pod.asked, args.args)
    return Calculated(output=dict(amounts_out(estimated.amounts)), because=estimated.because)


class GivenNode(Given, frozen=True, kw_only=True):
    """A node and its own thresholds."""

    name: str = ""
    allocatable: GivenResources | None = None
    raw_allocatable: GivenResources | None = None
    custom_usage_thresholds: GivenThresholds | None = None


class LoadAwareSchedulingInput(Given, frozen=True, kw_only=True):
    """A pod to place, a node with its pods and report, and the settings."""

    now_seconds: Seconds
    args: GivenArgs | None = None
    node: GivenNode
    node_metric: GivenReport | None = None
    assigned_pods: list[GivenLoadAwarePod] | None = None
    pod: GivenLoadAwarePod


def calc_load_aware_scheduling(given: LoadAwareSchedulingInput) -> Calculated:
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


class Event(Given, frozen=True, kw_only=True):
    """An event on the node."""

    at_seconds: Seconds
    type: Literal["assign", "unassign", "pod_update", "node_metric", "delete_node_metric"]
    pod: GivenLoadAwarePod | None = None
    node_metric: GivenReport | None = None


class LoadAwareAssignCacheInput(Given, frozen=True, kw_only=True):
    """The settings, and events in the order of time."""

    args: GivenArgs | None = None
    events: list[Event]


def calc_load_aware_assign_cache(given: LoadAwareAssignCacheInput) -> Calculated:
    """Compute the load of a node as pods are assigned between two reports."""
    cache = AssignCache(args=(given.args or GivenArgs()).args)
    after: list[dict[str, object]] = []
    because: list[Because] = []
    for index, event in enumerate(given.events):
        _happen(cache, event, f"input.events[{index}]")
        load = cache.load()
        after.append(existing_out(load))
        because += below(f"after_each_event/{index}", load.because if load else ())
    return Calculated(output={"after_each_event": after}, because=because)


def _happen(cache: AssignCache, event: Event, path: str) -> None:
    if event.type == "delete_node_metric":
        cache.measured(None)
    elif event.type == "node_metric":
        if event.node_metric is None:
            raise CaseError(f"{path}.node_metric", "missing: an event of type node_metric requires it")
        cache.measured(event.node_metric.report)
    elif event.pod is None:
        raise CaseError(f"{path}.pod", f"missing: an event of type {event.type} requires it")
    elif event.type == "assign":
        cache.assign(event.pod.asked, at_s=event.at_seconds)
    elif event.type == "unassign":
        cache.unassign(event.pod.asked)
    else:
        cache.update(event.pod.asked, at_s=event.at_seconds)


class GivenPlacementNode(Given, frozen=True, kw_only=True):
    """A node, its records, and the pods placed there."""

    name: str
    allocatable: GivenResources | None = None
    node_metric: GivenReport | None = None
    assigned_pods: list[GivenLoadAwarePod] | None = None
    silent: str = ""
    expired: bool = False
    pressure: list[str] = []
    batch_left: GivenUse | None = None
    mid_left: GivenUse | None = None
    free_left: GivenUse | None = None


class PodPlacementInput(Given, frozen=True, kw_only=True):
    """A pod, the candidate nodes, and the settings."""

    pod: GivenLoadAwarePod
    nodes: list[GivenPlacementNode]
    args: GivenArgs | None = None
    load_weight: Amount = 1
    balance_weight: Amount = 1


def calc_pod_placement(given: PodPlacementInput) -> Calculated:
    """Filter and rank the nodes for a pod."""
    load = (given.args or GivenArgs()).args
    args = PlacementArgs(load=load, load_weight=given.load_weight, balance_weight=given.balance_weight)
    views = [_view(node, args) for node in given.nodes]
    choice = choose(asking(given.pod.asked, args), views, args)
    return Calculated(
        output={
            "refused": {node: refusal.reason for node, refusal in sorted(choice.refused.items())},
            "ranked": [{"node": one.name, "level": one.level} for one in choice.ranked],
        },
        because=[because(f"nodes/{one.name}/score_permille", one) for one in choice.ranked],
    )


def _view(node: GivenPlacementNode, args: PlacementArgs) -> NodeView:
    cache = AssignCache(args=args.load, report=node.node_metric.report if node.node_metric else None)
    for assigned in node.assigned_pods or ():
        cache.assign(assigned.asked, at_s=0)
    return into(
        NodeView,
        node,
        state=NodeState(
            allocatable=allocatable_of(node.allocatable or GivenResources(), GivenResources()),
            custom=args.load.thresholds,
            load=cache.load(),
            args=args.load,
        ),
        batch_left=_amounts(node.batch_left),
        mid_left=_amounts(node.mid_left),
        free_left=_amounts(node.free_left),
    )
