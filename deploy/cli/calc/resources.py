"""Cases of the rules of node resources: batch, mid and free resources, and what is written to the Node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenPod, GivenResources, Percent, Seconds, into
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.policy.node_overlay import overlaid
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Because, Figured
from slacktide.streams.decisions.known_pods import REQUEST_FIELDS
from slacktide.streams.decisions.resources.batch_resource import (
    Zone,
    batch_resource,
    batch_resource_zones,
)
from slacktide.streams.decisions.resources.batch_resource_publish import Allocation, batch_resource_publish
from slacktide.streams.decisions.resources.free_resource import free_resource
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad, degraded
from slacktide.streams.decisions.resources.published_floor import published_floor
from slacktide.streams.decisions.resources.resource_sync_decision import DIFF_THRESHOLD, Pair, resource_sync_decision


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
    """The use of a pod, or of an application outside Kubernetes, as the agent reported it."""

    namespace: str = "default"
    name: str = ""
    priority_class: str = ""
    usage: GivenUse | None = None


class GivenMetric(Given, frozen=True, kw_only=True):
    """A NodeMetric."""

    update_time_seconds: Seconds | None = None
    node_usage: GivenUse | None = None
    system_usage: GivenUse | None = None
    pod_metrics: list[GivenPodMetric] | None = None
    host_apps: list[GivenPodMetric] | None = None
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

    cpu_reclaim_threshold_pct: Percent | None = None
    mem_reclaim_threshold_pct: Percent | None = None
    cpu_calculate_policy: str | None = None
    mem_calculate_policy: str | None = None
    batch_cpu_threshold_pct: Percent | None = None
    batch_mem_threshold_pct: Percent | None = None
    degrade_time_min: Percent | None = None
    mid_cpu_threshold_pct: Percent | None = None
    mid_mem_threshold_pct: Percent | None = None
    mid_unallocated_pct: Percent | None = None
    mid_reclaim_mode: str | None = None
    mid_static_cpu_reserved_pct: Percent | None = None
    mid_static_mem_reserved_pct: Percent | None = None
    free_class_enable: bool | None = None


class NodeCase(Given, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy."""

    now_seconds: Seconds
    node: GivenNode
    pods: list[GivenNumaPod] | None = None
    node_metric: GivenMetric | None = None
    strategy: GivenStrategy | None = None

    def colocation(self) -> Colocation:
        """Return the strategy in force on the node, by its annotation and labels."""
        colocation = into(Colocation, self.strategy or GivenStrategy())
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


BATCH_HOST_CLASSES = frozenset({"koord-prod", "koord-mid"})
BATCH_FIELDS = ("batch_cpu_milli", "batch_memory_bytes")


def calc_batch_resource(given: NodeCase) -> Calculated:
    """Compute the batch resources of a node and its NUMA zones."""
    colocation = given.colocation()
    reset = too_old(given, colocation, BATCH_FIELDS)
    if reset is not None:
        return reset
    load = load_of(given, BATCH_HOST_CLASSES)
    batch = batch_resource(load, colocation)
    output: dict[str, object] = {"degraded": False} | dict(
        zip(BATCH_FIELDS, (batch.cpu_milli, batch.mem_bytes), strict=True)
    )
    bound = {key(pod.namespace, pod.name): pod.numa_nodes for pod in given.pods or () if pod.numa_nodes}
    there = [zone.zone() for zone in given.node.numa_zones or ()]
    zones = batch_resource_zones(load, colocation, there, bound)
    if zones:
        output["zones"] = {zone.name: _written(one) for zone, one in zip(there, zones, strict=True)}
    return Calculated(output=output, because=[*batch.because, *(one for zone in zones for one in zone.because)])


def _written(zone: Figured) -> dict[str, int]:
    return dict(zip(BATCH_FIELDS, (zone.cpu_milli, zone.mem_bytes), strict=True))


MID_HOST_CLASSES = frozenset({"koord-prod"})
MID_FIELDS = ("mid_cpu_milli", "mid_memory_bytes")


def calc_mid_resource(given: NodeCase) -> Calculated:
    """Compute the mid resources of a node."""
    colocation = given.colocation()
    reset = too_old(given, colocation, MID_FIELDS)
    if reset is not None:
        return reset
    metric = given.node_metric or GivenMetric()
    mid = mid_resource(
        load_of(given, MID_HOST_CLASSES),
        colocation,
        reclaimable=(metric.prod_reclaimable or GivenUse()).use(),
        node_use=_whole(metric.node_usage),
    )
    return Calculated(
        output={"degraded": False, "mid_cpu_milli": mid.cpu_milli, "mid_memory_bytes": mid.mem_bytes},
        because=mid.because,
    )


def _whole(given: GivenUse | None) -> Use | None:
    """Return the use; None if an amount is missing."""
    return None if given is None or given.cpu_milli is None or given.memory_bytes is None else given.use()


FREE_HOST_CLASSES = frozenset({"koord-prod", "koord-mid", "koord-batch"})
FREE_FIELDS = ("free_cpu_milli", "free_memory_bytes")


def calc_free_resource(given: NodeCase) -> Calculated:
    """Compute the free resources of a node from its idle capacity."""
    colocation = given.colocation()
    reset = too_old(given, colocation, FREE_FIELDS)
    if reset is not None:
        return reset
    if not colocation.free_class_enable:
        return Calculated(
            output={"degraded": False} | dict.fromkeys(FREE_FIELDS),
            because=[Because(of=field, bound="disabled", terms={}) for field in FREE_FIELDS],
        )
    free = free_resource(load_of(given, FREE_HOST_CLASSES), colocation)
    return Calculated(
        output={"degraded": False, "free_cpu_milli": free.cpu_milli, "free_memory_bytes": free.mem_bytes},
        because=free.because,
    )


class GivenAllocation(Given, frozen=True, kw_only=True):
    """Allocations by another scheduler."""

    name: str = ""
    priority_class: str = ""
    resources: GivenResources | None = None


class BatchResourcePublishInput(Given, frozen=True, kw_only=True):
    """Computed resources (null: degraded), the normalization ratio as text, other schedulers' allocations."""

    calculated: GivenResources | None
    cpu_normalization_ratio: str | None = None
    third_party_allocations: list[GivenAllocation] | None = None


def calc_batch_resource_publish(given: BatchResourcePublishInput) -> Calculated:
    """Compute the batch resources to write to the node."""
    published = batch_resource_publish(
        given.calculated,
        given.cpu_normalization_ratio,
        [
            Allocation(priority_class=one.priority_class, resources=one.resources or Resources())
            for one in given.third_party_allocations or ()
        ],
    )
    return Calculated(
        output={
            "node_allocatable": _written_tier(published.allocatable),
            "origin_annotation": _written_tier(published.origin),
        },
        because=published.because,
    )


def _written_tier(resources: Resources | None) -> dict[str, int | None]:
    if resources is None:
        return {}
    return {"batch_cpu_milli": resources.batch_cpu_milli, "batch_memory_bytes": resources.batch_mem_bytes}


class ResourceSyncDecisionInput(Given, frozen=True, kw_only=True):
    """Published and computed resources of one tier."""

    resource_diff_threshold: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    tier: Literal["batch", "mid", "free"]
    old: GivenResources | None = None
    new: GivenResources | None = None


def calc_resource_sync_decision(given: ResourceSyncDecisionInput) -> Calculated:
    """Decide whether a change is large enough to be written."""
    old, new = given.old or Resources(), given.new or Resources()
    fields = {f"{given.tier}_cpu_milli": "cpu_milli", f"{given.tier}_memory_bytes": "mem_bytes"}
    pairs = [
        Pair(of=name, old=getattr(old, f"{given.tier}_{field}"), new=getattr(new, f"{given.tier}_{field}"))
        for name, field in fields.items()
    ]
    threshold = DIFF_THRESHOLD if given.resource_diff_threshold is None else given.resource_diff_threshold
    decision = resource_sync_decision(pairs, threshold)
    return Calculated(output={"need_sync": decision.need_sync}, because=decision.because)


class PublishedFloorInput(Given, frozen=True, kw_only=True):
    """Figures by resource (null: not published), and the node's pods."""

    figures: dict[str, Amount | None]
    pods: list[GivenPod] | None = None


def calc_published_floor(given: PublishedFloorInput) -> Calculated:
    """Raise published figures to at least the requests of running pods."""
    names = {field: field.replace("mem_bytes", "memory_bytes") for field in REQUEST_FIELDS}
    figures = {field: given.figures[name] for field, name in names.items() if name in given.figures}
    floored = published_floor(figures, given.pods or ())
    return Calculated(
        output={"published": {names[field]: figure for field, figure in floored.figures.items()}},
        because=floored.because,
    )
