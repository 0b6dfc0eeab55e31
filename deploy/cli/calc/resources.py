"""Cases of the rules of node resources: batch, mid and free resources, and what is written to the Node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import (
    Amount,
    Calculated,
    Given,
    GivenPod,
    GivenResources,
    GivenUse,
    Percent,
    Seconds,
    into,
)
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.policy.effective import overlaid
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Because, Figured
from slacktide.streams.decisions.known_pods import REQUEST_FIELDS
from slacktide.streams.decisions.resources.batch_resource import (
    Zone,
    batch_resource,
    batch_resource_zones,
    free_resource,
)
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad, degraded
from slacktide.streams.decisions.resources.publishing import (
    DIFF_THRESHOLD,
    Allocation,
    Pair,
    batch_resource_publish,
    published_floor,
    resource_sync_decision,
)


class GivenReserved(Given, frozen=True, kw_only=True):
    """Annotation node.koordinator.sh/reservation."""

    resources: GivenResources | None = None
    reserved_cpus: str | None = None


class GivenZone(Given, frozen=True, kw_only=True):
    """A NUMA zone."""

    name: str
    allocatable: GivenResources | None = None


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


def _published(
    given: NodeCase, tier: str, host_classes: Collection[str], rule: Callable[[NodeLoad, Colocation], Figured]
) -> Calculated:
    """Compute what a node publishes of a tier: nothing if it is degraded, or does not enable the tier."""
    fields = (f"{tier}_cpu_milli", f"{tier}_memory_bytes")
    colocation = given.colocation()
    terms = degraded(
        now_s=given.now_seconds,
        updated_s=None if given.node_metric is None else given.node_metric.update_time_seconds,
        degrade_time_min=colocation.degrade_time_min,
    )
    disabled = tier == "free" and not colocation.free_class_enable
    if terms is not None or disabled:
        bound = "disabled" if terms is None else "degraded"
        return Calculated(
            output={"degraded": terms is not None} | dict.fromkeys(fields),
            because=[Because(of=field, bound=bound, terms=terms or {}) for field in fields],
        )
    found = rule(load_of(given, host_classes), colocation)
    amounts: dict[str, object] = dict(zip(fields, (found.cpu_milli, found.mem_bytes), strict=True))
    return Calculated(output={"degraded": False} | amounts, because=found.because)


BATCH_HOST_CLASSES = frozenset({"koord-prod", "koord-mid"})


def calc_batch_resource(given: NodeCase) -> Calculated:
    """Compute the batch resources of a node and its NUMA zones."""
    whole = _published(given, "batch", BATCH_HOST_CLASSES, batch_resource)
    if whole.output["degraded"]:
        return whole
    bound = {key(pod.namespace, pod.name): pod.numa_nodes for pod in given.pods or () if pod.numa_nodes}
    zones = [Zone(name=one.name, allocatable=one.allocatable or Resources()) for one in given.node.numa_zones or ()]
    figures = batch_resource_zones(load_of(given, BATCH_HOST_CLASSES), given.colocation(), zones, bound)
    written = {
        zone.name: {"batch_cpu_milli": one.cpu_milli, "batch_memory_bytes": one.mem_bytes}
        for zone, one in zip(zones, figures, strict=False)
    }
    return Calculated(
        output=whole.output | ({"zones": written} if written else {}),
        because=[*whole.because, *(one for zone in figures for one in zone.because)],
    )


def calc_mid_resource(given: NodeCase) -> Calculated:
    """Compute the mid resources of a node."""
    metric = given.node_metric or GivenMetric()
    use = metric.node_usage
    whole = None if use is None or use.cpu_milli is None or use.mem_bytes is None else use.use()
    rule = partial(mid_resource, reclaimable=(metric.prod_reclaimable or GivenUse()).use(), node_use=whole)
    return _published(given, "mid", {"koord-prod"}, rule)


def calc_free_resource(given: NodeCase) -> Calculated:
    """Compute the free resources of a node from its idle capacity."""
    return _published(given, "free", {"koord-prod", "koord-mid", "koord-batch"}, free_resource)


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
