"""What is in force on one node, and which layer set it.

Layers, the last one wins: defaults, the cluster's strategy, the first node strategy whose selector matches, and for
colocation the node's own annotation, then its ratio labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy.admission import AdmissionPolicy
from slacktide.schemas.policy.agent import AgentPolicy
from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.schemas.policy.descheduling import Descheduling
from slacktide.schemas.policy.message import NodeStrategy, Policy, S
from slacktide.schemas.policy.node_overlay import ANNOTATION_STRATEGY, overlaid
from slacktide.schemas.policy.placement import Placement
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.selector import matches
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold

Layer = Literal["default", "cluster strategy", "node strategy", "annotation", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a field's value comes from."""

    layer: Layer
    name: str = ""
    """Name of the node strategy, annotation or label."""

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


def colocation_on(policy: Policy, facts: NodeFacts) -> Colocation:
    """The colocation strategy in force on a node."""
    node = _first(policy.node_colocation, facts.labels)
    return overlaid(policy.colocation if node is None else node.strategy, facts.annotations, facts.labels)[0]


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
    found.sources |= {f"colocation.{field}": Source(layer=_layer(name), name=name) for field, name in given.items()}
    return Effective(
        colocation=colocation,
        resource_threshold=found.held("resource_threshold", policy.resource_threshold, policy.node_resource_threshold),
        resource_qos=found.held("resource_qos", policy.resource_qos, policy.node_resource_qos),
        cpu_burst=found.held("cpu_burst", policy.cpu_burst, policy.node_cpu_burst),
        eviction_budget=policy.eviction_budget,
        descheduling=policy.descheduling,
        placement=policy.placement,
        agent=policy.agent,
        admission=policy.admission,
        sources=found.sources,
        shadowed=found.shadowed,
    )


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


def _layer(name: str) -> Layer:
    return "annotation" if name == ANNOTATION_STRATEGY else "label"
