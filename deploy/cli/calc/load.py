"""Cases of the rules of load-aware scheduling, which share the settings, the pods and the reports."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as replaced
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import (
    NO_AMOUNTS,
    Calculated,
    GivenPod,
    GivenResources,
    GivenUse,
    amounts_out,
    because,
    into,
)
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable, Percent, Seconds
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_estimator import (
    NOTHING,
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

Share = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
GivenAmounts = Annotated[Amounts, Form()]


def _by_resource(kind: Callable[[int, int], object], number: Any) -> By:
    """Cases have a map, of which an empty one counts as absent."""
    return By(
        lambda given, _: kind(given.get("cpu") or 0, given.get("memory") or 0) if given else None,
        dict[str, number | None],
    )


GivenPercents = Nullable[Annotated[Percents | None, _by_resource(Percents, Percent)]]
GivenWeights = Nullable[Annotated[Weights | None, _by_resource(Weights, Amount)]]
GivenFactors = Nullable[Annotated[Factors, Form(cpu_pct=Share | None, mem_pct=Share | None)]]
GivenLoadAwarePod = Annotated[
    LoadAwarePod,
    Form(
        "pod custom_factors custom_after_scheduled_s custom_after_initialized_s scheduled_s initialized_s daemonset",
        pod=Flat[GivenPod],
        custom_factors=GivenFactors,
        scheduled_s=Seconds | None,
        initialized_s=Seconds | None,
    ),
]
"""A pod object with values derived from its annotations, conditions and owner."""


def _used(use: GivenUse, _: str) -> Amounts | None:
    """Convert to the rule's type; an empty use counts as absent."""
    return None if use == GivenUse() else Amounts(use.cpu_milli or 0, use.mem_bytes or 0)


Used = Nullable[Annotated[Amounts | None, By(_used, GivenUse)]]


class _Statistic(Given, frozen=True, kw_only=True):
    type: str
    duration_seconds: Nullable[Seconds] = 0
    usage: Used = None


class _PodUse(Given, frozen=True, kw_only=True):
    namespace: str = "default"
    name: str = ""
    priority_class: str | None = None
    usage: Used = None


class _Report(Given, frozen=True, kw_only=True):
    update_time_seconds: Seconds | None = None
    report_interval_seconds: Nullable[Seconds] = REPORT_INTERVAL_S
    node_level_missing: Nullable[bool] = False
    node_usage: Nullable[GivenAmounts] = NOTHING
    system_usage: Nullable[GivenAmounts] = NOTHING
    aggregated_node_usage: Nullable[list[_Statistic]] = []
    pod_metrics: Nullable[list[_PodUse]] = []

    def report(self, _: str) -> NodeReport:
        """Convert to the rule's type. The last entry of a key wins."""
        aggregated = {
            Aggregation(one.type, one.duration_seconds): one.usage
            for one in self.aggregated_node_usage
            if one.usage is not None
        }
        return NodeReport(
            updated_s=self.update_time_seconds,
            interval_s=self.report_interval_seconds,
            node=None if self.node_level_missing else NodeUse(self.node_usage, self.system_usage, aggregated),
            pods={
                (pod.namespace, pod.name): PodUse(pod.usage, pod.priority_class == "koord-prod")
                for pod in self.pod_metrics
                if pod.usage is not None
            },
        )


NodeMetric = Nullable[Annotated[NodeReport | None, By(_Report.report, _Report)]]


class _Aggregated(Given, frozen=True, kw_only=True):
    usage_thresholds: GivenPercents = None
    usage_aggregation_type: Nullable[str] = ""
    usage_aggregated_duration_seconds: Nullable[Seconds] = 0
    score_aggregation_type: Nullable[str] = ""
    score_aggregated_duration_seconds: Nullable[Seconds] = 0


class _Thresholds(Given, frozen=True, kw_only=True):
    usage_thresholds: GivenPercents = None
    prod_usage_thresholds: GivenPercents = None
    aggregated: Nullable[_Aggregated] = _Aggregated()

    def thresholds(self, _: str) -> Thresholds:
        aggregated = self.aggregated
        return Thresholds(
            usage=self.usage_thresholds,
            prod=self.prod_usage_thresholds,
            aggregated=aggregated.usage_thresholds,
            aggregation=_aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration_seconds),
        )


def _aggregation(kind: str, duration_s: int) -> Aggregation | None:
    return Aggregation(kind, duration_s) if kind else None


def _settings(fields: str) -> Form:
    return Form(fields, weights=GivenWeights, dominant_weight=Nullable[Amount], factors=GivenFactors)


_OF_ESTIMATES = "factors allow_customize free_class_enable"
_OTHERS = _settings(
    "filter_expired schedule_when_expired expiration_s weights dominant_weight score_prod prod_include_system"
    f" after_scheduled_s after_initialized_s {_OF_ESTIMATES}"
)


class _Args(_Thresholds, frozen=True, kw_only=True):
    others: Flat[Annotated[LoadAwareArgs, _OTHERS]]

    def args(self, path: str) -> LoadAwareArgs:
        kind, duration_s = self.aggregated.score_aggregation_type, self.aggregated.score_aggregated_duration_seconds
        return replaced(self.others, thresholds=self.thresholds(path), score_aggregation=_aggregation(kind, duration_s))


Args = Nullable[Annotated[LoadAwareArgs, By(_Args.args, _Args)]]
DEFAULTS = LoadAwareArgs()


def existing_out(load: ExistingLoad | None) -> dict[str, object]:
    """Return both views of a node's load; null without a report."""
    return {
        "existing_estimated_all": load and amounts_out(load.everyone),
        "existing_estimated_prod": load and amounts_out(load.prod),
    }


def below(path: str, because: Iterable[Because]) -> list[Because]:
    """Prefix the figures' names with a path."""
    return [replace(one, of=f"{path}/{one.of}") for one in because]


def calc_load_aware_estimator(
    *, args: Flat[Annotated[LoadAwareArgs, _settings(_OF_ESTIMATES)]], pod: GivenLoadAwarePod
) -> Calculated:
    """Estimate the use of a pod."""
    estimated = estimate(pod, args)
    return Calculated(output={**amounts_out(estimated.amounts)}, because=estimated.because)


class _Node(Given, frozen=True, kw_only=True):
    name: str = ""
    allocatable: Nullable[GivenResources] = NO_AMOUNTS
    raw_allocatable: Nullable[GivenResources] = NO_AMOUNTS
    custom_usage_thresholds: Nullable[Annotated[Thresholds, By(_Thresholds.thresholds, _Thresholds)]] = Thresholds()


def calc_load_aware_scheduling(
    *,
    now_seconds: Seconds,
    args: Args = DEFAULTS,
    node: _Node,
    node_metric: NodeMetric = None,
    assigned_pods: Nullable[Sequence[GivenLoadAwarePod]] = (),
    pod: GivenLoadAwarePod,
) -> Calculated:
    """Filter and score a node for a pod by its pods and its report."""
    cache = AssignCache(args=args, report=node_metric)
    for assigned in assigned_pods:
        cache.assign(assigned, at_s=now_seconds)
    load = cache.load()
    state = NodeState(
        allocatable=allocatable_of(node.allocatable, node.raw_allocatable),
        custom=node.custom_usage_thresholds,
        load=load,
        args=args,
    )
    asked = candidate(pod, args)
    placement = place(asked, state, args, now_s=now_seconds)
    return Calculated(
        output={
            "schedulable": placement.filtered.schedulable,
            "reject_reason": placement.filtered.reject_reason,
            "score": placement.scored.score,
            "pod_estimate": amounts_out(asked.estimate.amounts),
            **existing_out(load),
        },
        because=[*below("pod_estimate", asked.estimate.because), *(load.because if load else ()), *placement.because],
    )


class _Event(Given, frozen=True, kw_only=True):
    at_seconds: Seconds
    type: Literal["assign", "unassign", "pod_update", "node_metric", "delete_node_metric"]
    pod: GivenLoadAwarePod | None = None
    node_metric: NodeMetric = None


def calc_load_aware_assign_cache(*, args: Args = DEFAULTS, events: Sequence[_Event]) -> Calculated:
    """Compute the load of a node as pods are assigned between two reports; events are in the order of time."""
    cache = AssignCache(args=args)
    after: list[dict[str, object]] = []
    because: list[Because] = []
    for index, event in enumerate(events):
        _happen(cache, event, f"input.events[{index}]")
        load = cache.load()
        after.append(existing_out(load))
        because += below(f"after_each_event/{index}", load.because if load else ())
    return Calculated(output={"after_each_event": after}, because=because)


def _happen(cache: AssignCache, event: _Event, path: str) -> None:
    if event.type == "delete_node_metric":
        cache.measured(None)
    elif event.type == "node_metric":
        if event.node_metric is None:
            raise CaseError(f"{path}.node_metric", "missing: an event of type node_metric requires it")
        cache.measured(event.node_metric)
    elif event.pod is None:
        raise CaseError(f"{path}.pod", f"missing: an event of type {event.type} requires it")
    elif event.type == "assign":
        cache.assign(event.pod, at_s=event.at_seconds)
    elif event.type == "unassign":
        cache.unassign(event.pod)
    else:
        cache.update(event.pod, at_s=event.at_seconds)


class _PlacementNode(Given, frozen=True, kw_only=True):
    name: str
    allocatable: Nullable[GivenResources] = NO_AMOUNTS
    node_metric: NodeMetric = None
    assigned_pods: Nullable[list[GivenLoadAwarePod]] = []
    silent: str = ""
    expired: bool = False
    pressure: list[str] = []
    batch_left: Nullable[GivenAmounts] = NOTHING
    mid_left: Nullable[GivenAmounts] = NOTHING
    free_left: Nullable[GivenAmounts] = NOTHING

    def view(self, args: LoadAwareArgs) -> NodeView:
        cache = AssignCache(args=args, report=self.node_metric)
        for assigned in self.assigned_pods:
            cache.assign(assigned, at_s=0)
        allocatable = allocatable_of(self.allocatable, NO_AMOUNTS)
        state = NodeState(allocatable=allocatable, custom=args.thresholds, load=cache.load(), args=args)
        return into(NodeView, self, state=state)


def calc_pod_placement(
    *,
    pod: GivenLoadAwarePod,
    nodes: Sequence[_PlacementNode],
    args: Args = DEFAULTS,
    load_weight: Amount = 1,
    balance_weight: Amount = 1,
) -> Calculated:
    """Filter and rank the nodes for a pod."""
    weighed = PlacementArgs(load=args, load_weight=load_weight, balance_weight=balance_weight)
    choice = choose(asking(pod, weighed), [node.view(args) for node in nodes], weighed)
    return Calculated(
        output={
            "refused": {node: refusal.reason for node, refusal in sorted(choice.refused.items())},
            "ranked": [{"node": one.name, "level": one.level} for one in choice.ranked],
        },
        because=[because(f"nodes/{one.name}/score_permille", one) for one in choice.ranked],
    )
