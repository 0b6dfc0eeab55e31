"""The case of load-aware descheduling."""

from __future__ import annotations

from math import inf
from typing import Annotated

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Seconds, Whole, into, kubernetes_names, unique
from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_classify import Band, LoadedNode, PlacedPod, SurveyPolicy, survey
from slacktide.streams.decisions.load.load_aware_descheduling import (
    Descheduled,
    DeschedulingPolicy,
    PassState,
    deschedule,
)

Threshold = Annotated[float, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
Rounds = Annotated[int, msgspec.Meta(ge=0, le=1000)]
Amounts = dict[str, Amount | None]
"""A resource object with any resources."""
# Thresholds and weights name resources as Kubernetes does.
_KUBERNETES_NAMES = kubernetes_names("batch", "mid")


class GivenPlacedPod(
    Given,
    frozen=True,
    kw_only=True,
    rename={
        "qos_label": "qos_class",
        "priority_class_label": "priority_class",
        "kube_qos": "kube_qos_class",
        "asked": "requests",
    },
):
    """A pod object with its usage, and the other inputs of the eviction order."""

    namespace: str = "default"
    name: str = ""
    uid: str = ""
    phase: str = "Running"
    qos_label: str | None = None
    priority_class_label: str | None = None
    priority: Whole | None = None
    kube_qos: str = "BestEffort"
    asked: Amounts | None = None
    usage: Amounts | None = None
    evictable: bool | None = None
    creation_time_seconds: Seconds | None = None
    deletion_cost: Whole | None = None
    eviction_cost: Whole | None = None


class GivenNode(Given, frozen=True, kw_only=True):
    """A node, its pods and its metric."""

    name: str
    allocatable: Amounts
    raw_allocatable: Amounts | None = None
    unschedulable: bool | None = None
    has_metric: bool | None = None
    metric_age_seconds: Seconds | None = None
    system_usage: Amounts | None = None
    usage_of_pods_no_longer_on_node: Amounts | None = None
    pods: list[GivenPlacedPod] | None = None


class LoadAwareDeschedulingInput(Given, frozen=True, kw_only=True):
    """An unchanged cluster, and the number of passes on it."""

    number_of_nodes: Whole | None = None
    node_fit: bool | None = None
    node_metric_expiration_seconds: Seconds | None = None
    use_deviation_thresholds: bool | None = None
    low_thresholds: dict[str, Threshold] | None = None
    high_thresholds: dict[str, Threshold] | None = None
    prod_low_thresholds: dict[str, Threshold] | None = None
    prod_high_thresholds: dict[str, Threshold] | None = None
    resource_weights: dict[str, Amount] | None = None
    consecutive_abnormalities: Whole | None = None
    rounds: Rounds | None = None
    nodes: list[GivenNode] = []


def calc_load_aware_descheduling(given: LoadAwareDeschedulingInput) -> Calculated:
    """Select the pods to evict from overloaded nodes, round by round."""
    why = "{!r} is not unique: an earlier node has this name"
    unique((one.name for one in given.nodes), "input.nodes[{}].name", why)
    seen = survey(map(_node, given.nodes), _survey_policy(given))
    policy, state, rounds = _policy(given), PassState(), list[Descheduled]()
    for _ in range(1 if given.rounds is None else given.rounds):
        rounds.append(deschedule(seen, policy, state))
        state = rounds[-1].state
    named = {name: [node.node.name for node in nodes] for name, nodes in seen.classes.items() if name != "between"}
    because = [_in_round(number, reason) for number, done in enumerate(rounds) for reason in done.because]
    return Calculated(
        output=named | {"evicted_per_round": list(map(_evicted, rounds))}, because=[*seen.because, *because]
    )


def _node(given: GivenNode) -> LoadedNode:
    capacity = given.allocatable if given.raw_allocatable is None else given.raw_allocatable
    age_s = inf if given.metric_age_seconds is None else given.metric_age_seconds
    return LoadedNode(
        name=given.name,
        allocatable=_amounts(given.allocatable),
        capacity=_amounts(capacity),
        schedulable=not given.unschedulable,
        pods=[_pod(pod) for pod in given.pods or ()],
        used_besides=[_amounts(given.system_usage), _amounts(given.usage_of_pods_no_longer_on_node)],
        metric_age_s=None if given.has_metric is False else age_s,
    )


def _pod(given: GivenPlacedPod) -> PlacedPod:
    return PlacedPod(
        pod=into(Pod, given),
        requests=_amounts(given.asked),
        used=None if given.usage is None else _amounts(given.usage),
        evictable=given.evictable is not False,
        created_s=given.creation_time_seconds or 0,
        deletion_cost=given.deletion_cost or 0,
        eviction_cost=given.eviction_cost or 0,
    )


def _amounts(given: Amounts | None) -> dict[str, int]:
    declared = given or {}
    return {_KUBERNETES_NAMES.get(name, name): amount for name, amount in declared.items() if amount is not None}


def _survey_policy(given: LoadAwareDeschedulingInput) -> SurveyPolicy:
    expiration_s = given.node_metric_expiration_seconds
    return SurveyPolicy(
        whole=Band(low=given.low_thresholds or {}, high=given.high_thresholds or {}),
        prod=Band(low=given.prod_low_thresholds or {}, high=given.prod_high_thresholds or {}),
        use_deviation=bool(given.use_deviation_thresholds),
        metric_expiration_s=180 if expiration_s is None else expiration_s,
    )


def _policy(given: LoadAwareDeschedulingInput) -> DeschedulingPolicy:
    default = DeschedulingPolicy()
    patience = given.consecutive_abnormalities
    return DeschedulingPolicy(
        too_few_targets=given.number_of_nodes or 0,
        node_fit=given.node_fit is not False,
        weights=default.weights if given.resource_weights is None else given.resource_weights,
        consecutive_abnormalities=default.consecutive_abnormalities if patience is None else patience,
    )


def _evicted(done: Descheduled) -> list[dict[str, object]]:
    return [
        {"pod": one.pod.pod.name, "node": one.node, "because_of_prod_usage": one.because_of_prod}
        for one in done.evictions
    ]


def _in_round(number: int, because: Because) -> Because:
    return replace(because, of=f"rounds/{number}/{because.of}")
