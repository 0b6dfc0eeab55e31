"""Defines types shared by the cases of a node's resources: the node, its metric, its strategy."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenPod, GivenResources, Percent, Seconds
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.policy.node_overlay import overlaid
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.batch_resource import Zone
from slacktide.streams.decisions.resources.node_load import NodeLoad, degraded


class GivenReserved(Given, frozen=True, kw_only=True):
    """Annotation node.koordinator.sh/reservation."""

    resources: GivenResources | None = None
    reserved_cpus: str | None = None


class GivenZone(Given, frozen=True, kw_only=True):
    """A NUMA zone."""

    name: str
    allocatable: GivenResources | None = None

    def zone(self) -> Zone:
        """Convert to the rule's type."""
        return Zone(name=self.name, allocatable=self.allocatable or Resources())


class GivenNode(Given, frozen=True, kw_only=True):
    """A node object."""

    name: str = ""
    capacity: GivenResources
    allocatable: GivenResources
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    reserved: GivenReserved | None = None
    numa_zones: list[GivenZone] | None = None

    def facts(self) -> NodeFacts:
        """Convert to the rule's type."""
        reserved = self.reserved or GivenReserved()
        return NodeFacts(
            name=self.name,
            capacity=self.capacity,
            allocatable=self.allocatable,
            reserved=reserved.resources or Resources(),
            reserved_cpus=reserved.reserved_cpus or "",
        )


class GivenUse(Given, frozen=True, kw_only=True):
    """A use; an absent amount was not measured."""

    cpu_milli: Amount | None = None
    memory_bytes: Amount | None = None

    def use(self) -> Use:
        """Convert to the rule's type; absent amounts are 0."""
        return Use(cpu_milli=self.cpu_milli or 0, mem_bytes=self.memory_bytes or 0)


class GivenPodMetric(Given, frozen=True, kw_only=True):
    """A pod's use as the agent reported it."""

    namespace: str = "default"
    name: str = ""
    priority_class: str = ""
    usage: GivenUse | None = None


class GivenHostApp(Given, frozen=True, kw_only=True):
    """An application outside Kubernetes."""

    name: str = ""
    priority_class: str = ""
    usage: GivenUse | None = None


class GivenMetric(Given, frozen=True, kw_only=True):
    """A NodeMetric."""

    update_time_seconds: Seconds | None = None
    node_usage: GivenUse | None = None
    system_usage: GivenUse | None = None
    pod_metrics: list[GivenPodMetric] | None = None
    host_apps: list[GivenHostApp] | None = None
    prod_reclaimable: GivenUse | None = None

    def host_use(self, classes: Collection[str]) -> Use:
        """Sum the use of host applications of these classes."""
        used = [app.usage.use() for app in self.host_apps or () if app.usage and app.priority_class in classes]
        return Use(cpu_milli=sum(use.cpu_milli for use in used), mem_bytes=sum(use.mem_bytes for use in used))


class GivenNumaPod(GivenPod, frozen=True, kw_only=True):
    """A pod that may be bound to NUMA nodes."""

    numa_nodes: list[int] | None = None


class GivenStrategy(Given, frozen=True, kw_only=True):
    """A colocation strategy. The rules validate its values."""

    cpu_reclaim_threshold_percent: Percent | None = None
    memory_reclaim_threshold_percent: Percent | None = None
    cpu_calculate_policy: str | None = None
    memory_calculate_policy: str | None = None
    batch_cpu_threshold_percent: Percent | None = None
    batch_memory_threshold_percent: Percent | None = None
    degrade_time_minutes: Percent | None = None
    mid_cpu_threshold_percent: Percent | None = None
    mid_memory_threshold_percent: Percent | None = None
    mid_unallocated_percent: Percent | None = None
    mid_reclaim_mode: str | None = None
    mid_static_cpu_reserved_percent: Percent | None = None
    mid_static_memory_reserved_percent: Percent | None = None
    free_class_enable: bool | None = None


_FIELDS = {
    name: name.replace("memory_", "mem_").replace("_percent", "_pct").replace("_minutes", "_min")
    for name in GivenStrategy.__struct_fields__
}


class NodeCase(Given, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy."""

    now_seconds: Seconds
    node: GivenNode
    pods: list[GivenNumaPod] | None = None
    node_metric: GivenMetric | None = None
    strategy: GivenStrategy | None = None

    def colocation(self) -> Colocation:
        """Return the strategy in force on the node, by its annotation and labels."""
        given = self.strategy or GivenStrategy()
        fields = {field: getattr(given, name) for name, field in _FIELDS.items()}
        colocation = Colocation(**{field: value for field, value in fields.items() if value is not None})
        return overlaid(colocation, self.node.annotations or {}, self.node.labels or {})[0]


def too_old(given: NodeCase, colocation: Colocation, fields: Sequence[str]) -> Calculated | None:
    """Return the result of a degraded node, which publishes none of these fields; None: it is not degraded."""
    terms = degraded(
        now_s=given.now_seconds,
        updated_s=None if given.node_metric is None else given.node_metric.update_time_seconds,
        degrade_time_min=colocation.degrade_time_min,
    )
    if terms is None:
        return None
    return Calculated(
        output={"degraded": True} | dict.fromkeys(fields),
        because=[Because(of=field, bound="degraded", terms=terms) for field in fields],
    )


def load_of(given: NodeCase, host_classes: Collection[str]) -> NodeLoad:
    """Convert the node to the rule's type, with host applications of only these classes."""
    metric = given.node_metric or GivenMetric()
    return NodeLoad(
        facts=given.node.facts(),
        pods=[msgspec.structs.replace(pod, uid=key(pod.namespace, pod.name)) for pod in given.pods or ()],
        metrics=[
            PodMetric(
                uid=key(pod.namespace, pod.name), priority_class=pod.priority_class, use=(pod.usage or GivenUse()).use()
            )
            for pod in metric.pod_metrics or ()
        ],
        system=(metric.system_usage or GivenUse()).use(),
        host_use=metric.host_use(host_classes),
    )


def key(namespace: str, name: str) -> str:
    """Return the key that joins a pod and its metric."""
    return f"{namespace}/{name}"
