"""Kueue's kinds in the newest version that the API server serves, whether Kueue admits, and the quotas written to it.

If Kueue admits on this cluster, the queue only decides. It writes nothing but the reclaimed capacity of nodes, to
ClusterQueues that opt in. These amounts are the decider's, damped, from the spec topic. They go to
``status.effectiveQuotas`` if Kueue has the field, else to ``nominalQuota``, at most once a minute for each.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Condition, Json, Meta
from slacktide.agents.kubernetes.resource import (
    CONFLICT,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NOT_FOUND,
    PRIORITY_CLASSES,
    VALIDATING_WEBHOOKS,
    ApiError,
    ApiRefusedError,
    Resource,
)
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, CaseError
from slacktide.schemas.queue import OFFERED_KEY, OfferedObject, OfferedSpec, QueueSpec
from slacktide.schemas.queue_objects import Metadata, Part
from slacktide.streams.decisions.queue.flavor_match import QUOTA_OF, effective_groups
from slacktide.streams.records import Record, text_of

log = logging.getLogger(__name__)

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")


PLURALS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
}
"""Of the kinds that the queue's decisions depend on."""
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
        kind: Resource(group=GROUP, version=plurals[plural], plural=plural)
        for kind, plural in PLURALS.items()
        if plural in plurals
    }
    if not found.keys() >= NEEDED:
        return {}, plurals
    return {**found, "Namespace": NAMESPACES, "PriorityClass": PRIORITY_CLASSES}, plurals


LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""Lease of Kueue's leading controller."""
LEASE_S = 60
"""A lease without renewal for this time is stale."""


class _Rule(Part, frozen=True, kw_only=True):
    api_groups: list[str] | None = None


class _Webhook(Part, frozen=True, kw_only=True):
    rules: list[_Rule] | None = None


class Webhooks(Part, frozen=True, kw_only=True):
    """The fields of a webhook configuration that detection reads."""

    metadata: Meta
    webhooks: list[_Webhook] | None = None

    @property
    def asks(self) -> bool:
        """Return whether it covers the queue's kinds."""
        rules = (rule for hook in self.webhooks or () for rule in hook.rules or ())
        return any(GROUP in (rule.api_groups or ()) for rule in rules)


class _LeaseSpec(Part, frozen=True, kw_only=True):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class _Lease(Part, frozen=True, kw_only=True):
    metadata: Meta
    spec: _LeaseSpec = _LeaseSpec()

    def held(self, now: datetime) -> bool:
        """Return whether the lease is renewed."""
        renewed = self.spec.renew_time
        return bool(self.spec.holder_identity) and renewed is not None and (now - renewed).total_seconds() < LEASE_S


class _Status(Part, frozen=True, kw_only=True):
    conditions: list[Condition] | None = None


class _Workload(Part, frozen=True, kw_only=True):
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
    for lease in (await api.list(LEASES, _Lease, fields=f"metadata.name={LEASE}")).items:
        if lease.held(now):
            return f"{lease.spec.holder_identity} holds the lease {lease.metadata.namespace}/{lease.metadata.name}"
    for each in [] if workloads is None else (await api.list(workloads, _Workload)).items:
        if each.holds:
            return f"Workload {each.metadata.namespace}/{each.metadata.name} holds quota"
    return ""


EVERY_S = 60.0
FIELD = "effectiveQuotas"
OWNER = {"apiGroup": "slacktide.io", "kind": "Queue", "name": "slacktide"}


class Quotas:
    """Writes quotas during one leader term."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offered: dict[str, OfferedSpec] = {}
        self._written_s: dict[str, float] = {}

    def read(self, record: Record) -> None:
        """Take a record of the spec topic."""
        kind, _, flavor = text_of(record.key or b"").partition("/")
        if kind != OFFERED_KEY:
            return
        if record.value is None:
            self._offered.pop(flavor, None)
            return
        try:
            one = decode(record.value, QueueSpec).offered
        except BadMessageError:
            return  # the former amount remains in force
        if one is not None:
            self._offered[flavor] = one.spec

    @property
    def offered(self) -> list[OfferedObject]:
        """Return the batch resources of each flavor's nodes."""
        return [OfferedObject(metadata=Metadata(name=flavor), spec=spec) for flavor, spec in self._offered.items()]

    async def write(self, api: ApiServer, queues: Resource) -> None:
        """Write the quotas that differ; rejected writes are logged and retried. Raises ApiError."""
        if not self._offered:
            return
        asking = [one for one in (await api.list(queues, dict)).items if QUOTA_OF in _annotations(one)]
        due = [
            one
            for one in asking
            if (mono_s(self._clock) >= self._written_s.get(one["metadata"]["name"], -EVERY_S) + EVERY_S)
        ]
        field = await _field(api, queues) if due else {}
        for one in due:
            await self._write(api, queues, one, field)

    async def _write(self, api: ApiServer, queues: Resource, one: Json, field: Json) -> None:
        name = one["metadata"]["name"]
        own = one["spec"].get("resourceGroups") or []
        try:
            groups = effective_groups(own, _annotations(one), self._offered, name)
        except CaseError as exc:
            log.warning("the quota of a ClusterQueue does not follow batch resources", extra={"why": str(exc)})
            return
        stands = ((one.get("status") or {}).get(FIELD) or {}).get("resourceGroups") if field else own
        if groups is None or groups == stands:
            return
        body: Json = {"metadata": {"resourceVersion": one["metadata"]["resourceVersion"]}}
        if field:
            now = datetime.fromtimestamp(self._clock.wall_ms() // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            given: Json = {"resourceGroups": groups, "orchestratorRef": OWNER, "lastUpdateTime": now}
            body["status"] = {FIELD: {name: value for name, value in given.items() if name in field}}
        else:
            body["spec"] = {"resourceGroups": groups}
        result = "done"
        self._written_s[name] = mono_s(self._clock)
        try:
            await api.patch(queues, name, body, dict, sub="status" if field else "")
            log.info("set the quota of a Kueue ClusterQueue to its nodes' batch resources",
                     extra={"cluster_queue": name, "field": FIELD if field else "nominalQuota"})  # fmt: skip
        except ApiRefusedError as exc:
            result = "conflict" if exc.status == CONFLICT else "refused"
            if result == "conflict":
                del self._written_s[name]  # nothing was written; the next pass reads it again
            log.warning("cannot set the quota of a Kueue ClusterQueue to its nodes' batch resources",
                        extra={"cluster_queue": name, "why": str(exc)})  # fmt: skip
        except ApiError:
            result = "away"
            raise
        finally:
            metrics.WRITES.labels("quota", result).inc()


def _annotations(one: Mapping[str, Any]) -> Json:
    return one["metadata"].get("annotations") or {}


async def _field(api: ApiServer, queues: Resource) -> Json:
    """Return the schema properties of ``status.effectiveQuotas``; empty if the field does not exist."""
    schema: Json = await api.read(f"/openapi/v3/apis/{GROUP}/{queues.version}", dict)
    for name, one in schema.get("components", {}).get("schemas", {}).items():
        if name.endswith(".ClusterQueue"):
            status = one.get("properties", {}).get("status", {}).get("properties", {})
            found: Json = status.get(FIELD, {}).get("properties", {})
            return found
    return {}
