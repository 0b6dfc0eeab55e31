"""Cases of the rules of node resources: batch, mid and free resources, and what is written to the Node."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import (
    NO_AMOUNTS,
    Calculated,
    GivenPod,
    GivenResources,
    GivenUse,
    amounts_out,
    pod_form,
)
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable, Percent, Seconds
from slacktide.schemas.inventory import NodeFacts, Pod
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
from slacktide.streams.decisions.resources.node_load import NOTHING, NodeLoad, degraded
from slacktide.streams.decisions.resources.publishing import (
    DIFF_THRESHOLD,
    Allocation,
    Pair,
    batch_resource_publish,
    published_floor,
    resource_sync_decision,
)


class _Reserved(Given, frozen=True, kw_only=True):
    resources: Nullable[GivenResources] = NO_AMOUNTS
    reserved_cpus: Nullable[str] = ""


_OPTIONAL = (Nullable[GivenResources], NO_AMOUNTS)


class _Node(Given, frozen=True, kw_only=True):
    name: str = ""
    capacity: GivenResources
    allocatable: GivenResources
    labels: Nullable[dict[str, str]] = {}
    annotations: Nullable[dict[str, str]] = {}
    reserved: Nullable[_Reserved] = _Reserved()
    numa_zones: Nullable[list[Annotated[Zone, Form(allocatable=_OPTIONAL)]]] = []

    def facts(self) -> NodeFacts:
        return NodeFacts(
            name=self.name,
            capacity=self.capacity,
            allocatable=self.allocatable,
            reserved=self.reserved.resources,
            reserved_cpus=self.reserved.reserved_cpus,
        )


Used = Nullable[Annotated[Use, Form(cpu_milli=0, mem_bytes=0)]]


def _whole(use: GivenUse, _: str) -> Use | None:
    measured = use.cpu_milli is not None and use.mem_bytes is not None
    return Use(cpu_milli=use.cpu_milli or 0, mem_bytes=use.mem_bytes or 0) if measured else None


class _PodMetric(Given, frozen=True, kw_only=True):
    namespace: str = "default"
    name: str = ""
    priority_class: str = ""
    usage: Used = NOTHING


class _Metric(Given, frozen=True, kw_only=True):
    update_time_seconds: Seconds | None = None
    node_usage: Nullable[Annotated[Use | None, By(_whole, GivenUse)]] = None
    system_usage: Used = NOTHING
    pod_metrics: Nullable[list[_PodMetric]] = []
    host_apps: Nullable[list[_PodMetric]] = []
    prod_reclaimable: Used = NOTHING

    def host_use(self, classes: Collection[str]) -> Use:
        """Sum the use of host applications of these classes."""
        used = [app.usage for app in self.host_apps if app.priority_class in classes]
        return Use(cpu_milli=sum(use.cpu_milli for use in used), mem_bytes=sum(use.mem_bytes for use in used))


class _BoundPod(Pod, frozen=True, kw_only=True):
    numa_nodes: list[int] | None = None


_TEXT = Nullable[str]
GivenStrategy = Annotated[
    Colocation,
    Form(
        "cpu_reclaim_threshold_pct mem_reclaim_threshold_pct cpu_calculate_policy mem_calculate_policy"
        " batch_cpu_threshold_pct batch_mem_threshold_pct degrade_time_min mid_cpu_threshold_pct"
        " mid_mem_threshold_pct mid_unallocated_pct mid_reclaim_mode mid_static_cpu_reserved_pct"
        " mid_static_mem_reserved_pct free_class_enable",
        cpu_calculate_policy=_TEXT,
        mem_calculate_policy=_TEXT,
        degrade_time_min=Nullable[Percent],
        mid_reclaim_mode=_TEXT,
    ),
]
"""A colocation strategy. The rules validate its values."""


class _NodeCase(Given, frozen=True, kw_only=True):
    now_seconds: Seconds
    node: _Node
    pods: Nullable[list[Annotated[_BoundPod, pod_form(numa_nodes=list[int] | None)]]] = []
    node_metric: Nullable[_Metric] = _Metric()
    strategy: Nullable[GivenStrategy] = Colocation()

    def colocation(self) -> Colocation:
        """Return the strategy in force on the node, by its annotation and labels."""
        return overlaid(self.strategy, self.node.annotations, self.node.labels)[0]


def load_of(given: _NodeCase, host_classes: Collection[str]) -> NodeLoad:
    """Convert the node to the rule's type, with host applications of only these classes."""
    metric = given.node_metric
    return NodeLoad(
        facts=given.node.facts(),
        pods=[msgspec.structs.replace(pod, uid=key(pod.namespace, pod.name)) for pod in given.pods],
        metrics=[
            PodMetric(uid=key(pod.namespace, pod.name), priority_class=pod.priority_class, use=pod.usage)
            for pod in metric.pod_metrics
        ],
        system=metric.system_usage,
        host_use=metric.host_use(host_classes),
    )


def key(namespace: str, name: str) -> str:
    """Return the key that joins a pod and its metric."""
    return f"{namespace}/{name}"


def _published(
    given: _NodeCase, tier: str, host_classes: Collection[str], rule: Callable[[NodeLoad, Colocation], Figured]
) -> Calculated:
    """Compute what a node publishes of a tier: nothing if it is degraded, or does not enable the tier."""
    fields = (f"{tier}_cpu_milli", f"{tier}_memory_bytes")
    colocation = given.colocation()
    terms = degraded(
        now_s=given.now_seconds,
        updated_s=given.node_metric.update_time_seconds,
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
    amounts = {f"{tier}_{name}": amount for name, amount in amounts_out(found).items()}
    return Calculated(output={"degraded": False, **amounts}, because=found.because)


BATCH_HOST_CLASSES = frozenset({"koord-prod", "koord-mid"})


def calc_batch_resource(given: _NodeCase) -> Calculated:
    """Compute the batch resources of a node and its NUMA zones."""
    whole = _published(given, "batch", BATCH_HOST_CLASSES, batch_resource)
    if whole.output["degraded"]:
        return whole
    bound = {key(pod.namespace, pod.name): pod.numa_nodes for pod in given.pods if pod.numa_nodes}
    zones = given.node.numa_zones
    figures = batch_resource_zones(load_of(given, BATCH_HOST_CLASSES), given.colocation(), zones, bound)
    written = {
        zone.name: {f"batch_{name}": amount for name, amount in amounts_out(one).items()}
        for zone, one in zip(zones, figures, strict=False)
    }
    return Calculated(
        output=whole.output | ({"zones": written} if written else {}),
        because=[*whole.because, *(one for zone in figures for one in zone.because)],
    )


def calc_mid_resource(given: _NodeCase) -> Calculated:
    """Compute the mid resources of a node."""
    metric = given.node_metric
    rule = partial(mid_resource, reclaimable=metric.prod_reclaimable, node_use=metric.node_usage)
    return _published(given, "mid", {"koord-prod"}, rule)


def calc_free_resource(given: _NodeCase) -> Calculated:
    """Compute the free resources of a node from its idle capacity."""
    return _published(given, "free", {"koord-prod", "koord-mid", "koord-batch"}, free_resource)


class _Allocation(Given, frozen=True, kw_only=True):
    name: str = ""
    allocation: Flat[Annotated[Allocation, Form(priority_class=(str, ""), resources=_OPTIONAL)]]


def calc_batch_resource_publish(
    *,
    calculated: GivenResources | None,
    cpu_normalization_ratio: str | None = None,
    third_party_allocations: Nullable[Sequence[_Allocation]] = (),
) -> Calculated:
    """Compute the batch resources that Koordinator publishes; Slacktide publishes others. null: degraded."""
    published = batch_resource_publish(
        calculated, cpu_normalization_ratio, [one.allocation for one in third_party_allocations]
    )
    written = {
        name: {"batch_cpu_milli": one.batch_cpu_milli, "batch_memory_bytes": one.batch_mem_bytes} if one else {}
        for name, one in (("node_allocatable", published.allocatable), ("origin_annotation", published.origin))
    }
    return Calculated(output={**written}, because=published.because)


def calc_resource_sync_decision(
    *,
    resource_diff_threshold: Nullable[Annotated[float, msgspec.Meta(ge=0, le=1e6)]] = DIFF_THRESHOLD,
    tier: Literal["batch", "mid", "free"],
    old: Nullable[GivenResources] = NO_AMOUNTS,
    new: Nullable[GivenResources] = NO_AMOUNTS,
) -> Calculated:
    """Decide whether the resources of a tier changed enough to be written."""
    fields = {f"{tier}_cpu_milli": f"{tier}_cpu_milli", f"{tier}_memory_bytes": f"{tier}_mem_bytes"}
    pairs = [Pair(of=name, old=getattr(old, field), new=getattr(new, field)) for name, field in fields.items()]
    decision = resource_sync_decision(pairs, resource_diff_threshold)
    return Calculated(output={"need_sync": decision.need_sync}, because=decision.because)


def calc_published_floor(
    *, figures: Mapping[str, Amount | None], pods: Nullable[Sequence[GivenPod]] = ()
) -> Calculated:
    """Raise published figures by resource (null: not published) to at least the requests of running pods."""
    names = {field: field.replace("mem_bytes", "memory_bytes") for field in REQUEST_FIELDS}
    floored = published_floor({field: figures[name] for field, name in names.items() if name in figures}, pods)
    return Calculated(
        output={"published": {names[field]: figure for field, figure in floored.figures.items()}},
        because=floored.because,
    )
