"""The kinds that the queue reads, in the newest version that the API server serves, and whether Kueue admits.

If Kueue admits on this cluster, the queue only decides, and writes nothing to the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import (
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NOT_FOUND,
    PRIORITY_CLASSES,
    VALIDATING_WEBHOOKS,
    ApiRefusedError,
    Meta,
    Resource,
)
from slacktide.schemas.queue_objects import (
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    NamespaceObject,
    PriorityClassObject,
    QueueObject,
    ResourceFlavorObject,
    WorkloadPriorityClassObject,
)

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")


class Spec(NamedTuple):
    """A kind that the queue's decisions depend on."""

    type: type[QueueObject]
    plural: str


SPECS = {
    "ClusterQueue": Spec(ClusterQueueObject, "clusterqueues"),
    "Cohort": Spec(CohortObject, "cohorts"),
    "ResourceFlavor": Spec(ResourceFlavorObject, "resourceflavors"),
    "LocalQueue": Spec(LocalQueueObject, "localqueues"),
    "WorkloadPriorityClass": Spec(WorkloadPriorityClassObject, "workloadpriorityclasses"),
    "Namespace": Spec(NamespaceObject, "namespaces"),
    "PriorityClass": Spec(PriorityClassObject, "priorityclasses"),
}
NEEDED = {"ClusterQueue", "ResourceFlavor", "LocalQueue"}


class _Served(msgspec.Struct, frozen=True):
    name: str


class _List(msgspec.Struct, frozen=True):
    resources: list[_Served] = []


def workloads_of(plurals: Mapping[str, str]) -> Resource | None:
    """Return the kind Workload; None if the API server does not serve it."""
    version = plurals.get("workloads")
    return None if version is None else Resource(group=GROUP, version=version, plural="workloads")


async def served(api: ApiServer) -> tuple[dict[str, Resource], dict[str, str]]:
    """Return the served kinds, and all plurals of Kueue's group with their versions.

    Return no kinds if a required one is missing. Raises ApiError if the API server cannot be queried.
    """
    plurals: dict[str, str] = {}
    for version in VERSIONS:
        try:
            listed = await api.read(f"/apis/{GROUP}/{version}", _List)
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
            continue
        for one in listed.resources:
            plurals.setdefault(one.name, version)
    found = {
        kind: Resource(group=GROUP, version=plurals[one.plural], plural=one.plural)
        for kind, one in SPECS.items()
        if one.plural in plurals
    }
    if not found.keys() >= NEEDED:
        return {}, plurals
    return {**found, "Namespace": NAMESPACES, "PriorityClass": PRIORITY_CLASSES}, plurals


LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""Lease of Kueue's leading controller."""
LEASE_S = 60
"""A lease without renewal for this time is stale."""


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields use Kubernetes' names."""


class _Rule(_Shape, frozen=True, kw_only=True):
    api_groups: list[str] | None = None


class _Webhook(_Shape, frozen=True, kw_only=True):
    rules: list[_Rule] | None = None


class Webhooks(_Shape, frozen=True, kw_only=True):
    """The fields of a webhook configuration that detection reads."""

    metadata: Meta
    webhooks: list[_Webhook] | None = None

    @property
    def asks(self) -> bool:
        """Return whether it covers the queue's kinds."""
        rules = (rule for hook in self.webhooks or () for rule in hook.rules or ())
        return any(GROUP in (rule.api_groups or ()) for rule in rules)


class _LeaseSpec(_Shape, frozen=True, kw_only=True):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class Lease(_Shape, frozen=True, kw_only=True):
    """The fields of a lease that detection reads."""

    metadata: Meta
    spec: _LeaseSpec = _LeaseSpec()

    def held(self, now: datetime) -> bool:
        """Return whether the lease is renewed."""
        renewed = self.spec.renew_time
        return bool(self.spec.holder_identity) and renewed is not None and (now - renewed).total_seconds() < LEASE_S


class _Condition(_Shape, frozen=True, kw_only=True):
    type: str
    status: str


class _Status(_Shape, frozen=True, kw_only=True):
    conditions: list[_Condition] | None = None


class AdmittedWorkload(_Shape, frozen=True, kw_only=True):
    """The fields of a Workload that detection reads."""

    metadata: Meta
    status: _Status = _Status()

    @property
    def holds(self) -> bool:
        """Return whether it holds quota. Slacktide writes no Workloads."""
        held = {one.type for one in self.status.conditions or () if one.status == "True"}
        return "QuotaReserved" in held and "Finished" not in held


async def kueue(api: ApiServer, workloads: Resource | None, now_ms: Callable[[], int]) -> str:
    """Return how Kueue was detected; "" if it was not. Raises ApiError."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for one in (await api.list(resource, Webhooks)).items:
            if one.asks:
                return f"{resource.plural} {one.metadata.name} refers to {GROUP}"
    now = datetime.fromtimestamp(now_ms() / 1_000, UTC)
    if (lease := first((await api.list(LEASES, Lease, fields=f"metadata.name={LEASE}")).items, now)) is not None:
        return f"{lease.spec.holder_identity} holds the lease {lease.metadata.namespace}/{lease.metadata.name}"
    if workloads is not None:
        for each in (await api.list(workloads, AdmittedWorkload)).items:
            if each.holds:
                return f"Workload {each.metadata.namespace}/{each.metadata.name} holds quota"
    return ""


def first(leases: Iterable[Lease], now: datetime) -> Lease | None:
    """Return the first lease that is not stale."""
    return next((one for one in leases if one.held(now)), None)
