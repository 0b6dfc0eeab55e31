"""What is in force on one node, and which layer set it.

Layers, the last one wins: defaults, the cluster's strategy, the first node strategy whose selector matches, and for
colocation the node's own annotation, then its ratio labels. A cap that was learned of the node's services only lowers
what these allow.
Reading: koordinator a7a1b76b, pkg/util/sloconfig/colocation_config.go, pkg/slo-controller/noderesource (node
annotation and label overrides).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy.keys import name_of
from slacktide.schemas.policy.message import NodeStrategy, Policy, S
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.selector import matches
from slacktide.schemas.policy.strategies import (
    AdmissionPolicy,
    AgentPolicy,
    Colocation,
    CpuBurst,
    Descheduling,
    EvictionBudget,
    Placement,
    ResourceThreshold,
)
from slacktide.schemas.text import json_of
from slacktide.schemas.units import decimal

ANNOTATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
RATIO_LABELS = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpu_reclaim_threshold_pct",
    "node.koordinator.sh/memory-reclaim-ratio": "mem_reclaim_threshold_pct",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "mid_static_cpu_reserved_pct",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "mid_static_mem_reserved_pct",
}
_FIELDS = (
    "cpu_reclaim_threshold_pct",
    "mem_reclaim_threshold_pct",
    "cpu_calculate_policy",
    "mem_calculate_policy",
    "batch_cpu_threshold_pct",
    "batch_mem_threshold_pct",
    "degrade_time_min",
    "update_time_threshold_s",
    "resource_diff_threshold",
    "mid_reclaim_mode",
    "mid_cpu_threshold_pct",
    "mid_mem_threshold_pct",
    "mid_unallocated_pct",
    "mid_static_cpu_reserved_pct",
    "mid_static_mem_reserved_pct",
)
FIELDS = {name_of(Colocation, field): field for field in _FIELDS}
"""The strategy's keys, in the ConfigMap as in the annotation, and the fields they set."""
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TEXTS = frozenset({"cpu_calculate_policy", "mem_calculate_policy", "mid_reclaim_mode"})


# Types alone are checked here: the reference ignores an annotation it cannot parse, and takes any number in one it can.
_Annotation = msgspec.defstruct(
    "_Annotation",
    [
        (field, (str if field in _TEXTS else float if field == "resource_diff_threshold" else _Int64) | None, None)
        for field in _FIELDS
    ],
    rename={field: name for name, field in FIELDS.items()},
    frozen=True,
)


def overlaid(
    colocation: Colocation, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Colocation, dict[str, str]]:
    """The strategy in force on a node.

    Args:
        colocation: what holds for it otherwise.
        annotations: the node's; one that is not a JSON object of the strategy's types is ignored whole.
        labels: the node's; a ratio r sets the percent to r x 100, truncated; one below 0 or no decimal is ignored.

    Returns:
        The strategy, and for each field that the node set the annotation or label that did.
    """
    text = annotations.get(ANNOTATION_STRATEGY)
    given = {} if text is None else annotation_fields(text)
    sources = dict.fromkeys(given, ANNOTATION_STRATEGY)
    for label, field in RATIO_LABELS.items():
        percent = ratio_pct(labels[label]) if label in labels else None
        if percent is not None:
            given[field] = percent
            sources[field] = label
    return (msgspec.structs.replace(colocation, **given) if given else colocation), sources


def annotation_fields(text: str) -> dict[str, Any]:
    """Fields and values of the annotation; empty if it is malformed."""
    try:
        read: msgspec.Struct = json_of(text, _Annotation, where=ANNOTATION_STRATEGY)
    except TextError:
        return {}
    return {field: value for field, value in msgspec.structs.asdict(read).items() if value is not None}


def ratio_pct(text: str) -> int | None:
    """Percent of a ratio label; None: ignored. Truncated as in the reference: 0.29 is 28."""
    ratio = decimal(text)
    return int(ratio * 100) if ratio is not None and ratio >= 0 and math.isfinite(ratio * 100) else None


Layer = Literal["default", "cluster strategy", "node strategy", "annotation", "label", "learned of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a field's value comes from."""

    layer: Layer
    name: str = ""
    """Name of the node strategy, annotation, label or service."""

    def __str__(self) -> str:
        return f"{self.layer} {self.name}".rstrip()


DEFAULT_SOURCE = Source(layer="default")
CLUSTER_SOURCE = Source(layer="cluster strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The strategies in force, and where their values came from."""

    colocation: Colocation
    resource_threshold: ResourceThreshold
    resource_qos: ResourceQos
    cpu_burst: CpuBurst
    eviction_budget: EvictionBudget
    descheduling: Descheduling
    placement: Placement
    agent: AgentPolicy
    admission: AdmissionPolicy
    sources: Mapping[str, Source]
    """By field, such as ``colocation.enable``. Absent fields have their defaults."""
    shadowed: Mapping[str, tuple[str, ...]]
    """By strategy: names of further matching node strategies, after the first one, which is used."""

    def source(self, field: str) -> Source:
        """Where a field's value comes from."""
        return self.sources.get(field, DEFAULT_SOURCE)


STRATEGIES = tuple(one.name for one in fields(Effective) if one.name not in {"sources", "shadowed"})
"""Fields with a strategy, as in ``Policy``."""


def colocation_on(policy: Policy, facts: NodeFacts) -> Colocation:
    """The colocation strategy in force on a node."""
    found = overlaid(colocation_given(policy, facts), facts.annotations, facts.labels)[0]
    return _capped(found, facts) if facts.slope_permille else found


def colocation_given(policy: Policy, facts: NodeFacts) -> Colocation:
    """The colocation strategy that the policy gives a node, without its annotation, its ratio labels and its cap."""
    node = _first(policy.node_colocation, facts.labels)
    return policy.colocation if node is None else node.strategy


def learned_cap_pct(colocation: Colocation, facts: NodeFacts) -> int | None:
    """The percent of the node's CPU that best-effort pods may use before one of its services is over the budget.

    By the largest learned slope of the node's services, whatever ``learned_caps`` is. None: all of it, or no slope is
    known.
    """
    return cap_of_slope_pct(facts.slope_permille, colocation.interference_budget_pct)


def cap_of_slope_pct(slope_permille: int, budget_pct: int) -> int | None:
    """``learned_cap_pct`` for one slope, see ``ServiceSlope``; 0: not known."""
    if slope_permille <= 0:
        return None
    percent = int(100_000 * math.log1p(budget_pct / 100) / slope_permille)
    return percent if percent < 100 else None


def cap_in_force_pct(colocation: Colocation, facts: NodeFacts) -> int | None:
    """``learned_cap_pct`` where the policy applies it; else None."""
    applied = colocation.enable and colocation.learned_caps == "on"
    return learned_cap_pct(colocation, facts) if applied else None


def _capped(colocation: Colocation, facts: NodeFacts) -> Colocation:
    """Offer no more batch CPU than the services bear."""
    cap_pct, own_pct = cap_in_force_pct(colocation, facts), colocation.batch_cpu_threshold_pct
    if cap_pct is None or (own_pct is not None and own_pct <= cap_pct):
        return colocation
    return msgspec.structs.replace(colocation, batch_cpu_threshold_pct=cap_pct)


def resource_threshold_on(policy: Policy, facts: NodeFacts) -> ResourceThreshold:
    """The thresholds in force on a node."""
    node = _first(policy.node_resource_threshold, facts.labels)
    return policy.resource_threshold if node is None else node.strategy


def cpu_burst_on(policy: Policy, facts: NodeFacts) -> CpuBurst:
    """The CPU burst strategy in force on a node."""
    node = _first(policy.node_cpu_burst, facts.labels)
    return policy.cpu_burst if node is None else node.strategy


def resource_qos_on(policy: Policy, facts: NodeFacts) -> ResourceQos:
    """Kernel settings for pods of each QoS class on a node."""
    node = _first(policy.node_resource_qos, facts.labels)
    return policy.resource_qos if node is None else node.strategy


def effective(policy: Policy, facts: NodeFacts) -> Effective:
    """The effective policy of a node."""
    found = _Found(policy.said, facts.labels)
    colocation = found.held("colocation", policy.colocation, policy.node_colocation)
    colocation, given = overlaid(colocation, facts.annotations, facts.labels)
    for field, name in given.items():
        layer: Layer = "annotation" if name == ANNOTATION_STRATEGY else "label"
        found.sources[f"colocation.{field}"] = Source(layer=layer, name=name)
    capped = _capped(colocation, facts)
    if capped is not colocation:
        found.sources["colocation.batch_cpu_threshold_pct"] = Source(layer="learned of", name=facts.slope_of)
        colocation = capped
    strategies: dict[str, Any] = {name: getattr(policy, name) for name in STRATEGIES} | {"colocation": colocation}
    for name in ("resource_threshold", "resource_qos", "cpu_burst"):
        strategies[name] = found.held(name, strategies[name], getattr(policy, f"node_{name}"))
    return Effective(**strategies, sources=found.sources, shadowed=found.shadowed)


class _Found:
    """Finds the values for a node's labels, with their sources."""

    def __init__(self, given: Sequence[str], labels: Mapping[str, str]) -> None:
        self.sources = dict.fromkeys(given, CLUSTER_SOURCE)
        self.shadowed: dict[str, tuple[str, ...]] = {}
        self._labels = labels

    def held(self, name: str, cluster: S, nodes: Sequence[NodeStrategy[S]]) -> S:
        node = _first(nodes, self._labels)
        if node is None:
            return cluster
        self.sources |= {f"{name}.{field}": Source(layer="node strategy", name=node.name) for field in node.said}
        self.shadowed[name] = tuple(
            other.name for other in nodes if other is not node and matches(other.selector, self._labels)
        )
        return node.strategy


def _first(nodes: Sequence[NodeStrategy[S]], labels: Mapping[str, str]) -> NodeStrategy[S] | None:
    for node in nodes:
        if matches(node.selector, labels):
            return node
    return None
