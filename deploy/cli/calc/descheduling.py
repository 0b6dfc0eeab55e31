"""The case of load-aware descheduling."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import Calculated, kubernetes_names, unique
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable, Seconds
from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.load.load_aware_classify import (
    Amounts,
    Band,
    LoadedNode,
    PlacedPod,
    SurveyPolicy,
    survey,
)
from slacktide.streams.decisions.load.load_aware_descheduling import Descheduled, PassState, deschedule
from slacktide.streams.decisions.load.load_aware_phase import DeschedulingPolicy

Threshold = Annotated[float, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
Rounds = Annotated[int, msgspec.Meta(ge=0, le=1000)]
# Thresholds and weights name resources as Kubernetes does.
_KUBERNETES_NAMES = kubernetes_names("batch", "mid")


def _amounts(declared: dict[str, int | None], _: str) -> Amounts:
    return {_KUBERNETES_NAMES.get(name, name): amount for name, amount in declared.items() if amount is not None}


GivenAmounts = Annotated[Amounts, By(_amounts, dict[str, Amount | None])]
"""A resource object with any resources."""
_OPTIONAL = Nullable[GivenAmounts]
_IDENTITY = Annotated[
    Pod,
    Form(
        "namespace name uid phase qos_label priority_class_label priority kube_qos",
        namespace=(str, "default"),
        name=(str, ""),
        uid=(str, ""),
        phase=str,
        kube_qos=str,
    ),
]
GivenPlacedPod = Annotated[
    PlacedPod,
    Form(pod=Flat[_IDENTITY], requests=(_OPTIONAL, {}), used=GivenAmounts | None, evictable=True, created_s=0),
]
"""A pod with its usage, and the other inputs of the eviction order."""


class _Node(Given, frozen=True, kw_only=True):
    name: str
    allocatable: GivenAmounts
    raw_allocatable: GivenAmounts | None = None
    unschedulable: Nullable[bool] = False
    has_metric: Nullable[bool] = True
    metric_age_seconds: Nullable[Seconds] = inf  # type: ignore[assignment] # of unknown age
    system_usage: _OPTIONAL = {}
    usage_of_pods_no_longer_on_node: _OPTIONAL = {}
    pods: Nullable[list[GivenPlacedPod]] = []

    def node(self) -> LoadedNode:
        return LoadedNode(
            name=self.name,
            allocatable=self.allocatable,
            capacity=self.allocatable if self.raw_allocatable is None else self.raw_allocatable,
            schedulable=not self.unschedulable,
            pods=self.pods,
            used_besides=[self.system_usage, self.usage_of_pods_no_longer_on_node],
            metric_age_s=self.metric_age_seconds if self.has_metric else None,
        )


def _band(view: str) -> Form:
    percents: tuple[Any, ...] = (Nullable[dict[str, Threshold]], {})
    return Form(names={"low": f"{view}low_thresholds", "high": f"{view}high_thresholds"}, low=percents, high=percents)


GivenSurvey = Annotated[
    SurveyPolicy,
    Form(
        whole=Flat[Annotated[Band, _band("")]],
        prod=Flat[Annotated[Band, _band("prod_")]],
        use_deviation=False,
        metric_expiration_s=180,
    ),
]
GivenPolicy = Annotated[
    DeschedulingPolicy,
    Form("too_few_targets node_fit weights consecutive_abnormalities", weights=Nullable[dict[str, Amount]]),
]


def calc_load_aware_descheduling(
    *,
    looked_at: Flat[GivenSurvey],
    policy: Flat[GivenPolicy],
    rounds: Nullable[Rounds] = 1,
    nodes: Sequence[_Node] = (),
) -> Calculated:
    """Select the pods to evict from overloaded nodes of an unchanged cluster, pass by pass."""
    unique((one.name for one in nodes), "input.nodes[{}].name", "{!r} is not unique: an earlier node has this name")
    seen = survey([one.node() for one in nodes], looked_at)
    state, done = PassState(), list[Descheduled]()
    for _ in range(rounds):
        done.append(deschedule(seen, policy, state))
        state = done[-1].state
    named = {name: [node.node.name for node in nodes] for name, nodes in seen.classes.items() if name != "between"}
    because = [
        replace(reason, of=f"rounds/{number}/{reason.of}") for number, one in enumerate(done) for reason in one.because
    ]
    return Calculated(
        output=named | {"evicted_per_round": list(map(_evicted, done))}, because=[*seen.because, *because]
    )


def _evicted(done: Descheduled) -> list[dict[str, object]]:
    return [
        {"pod": one.pod.pod.name, "node": one.node, "because_of_prod_usage": one.because_of_prod}
        for one in done.evictions
    ]
