"""Detects whether Kueue admits on this cluster. If so, the queue only decides, and writes nothing to the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec

from slacktide.agents.cluster.queue.kinds import GROUP
from slacktide.agents.kubernetes import LEASES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiServer, Resource

LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""Lease of Kueue's leading controller."""
LEASE_S = 60
"""A lease without renewal for this time is stale."""


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields use Kubernetes' names."""


class _Metadata(_Shape, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""


class _Rule(_Shape, frozen=True, kw_only=True):
    api_groups: list[str] | None = None


class _Webhook(_Shape, frozen=True, kw_only=True):
    rules: list[_Rule] | None = None


class Webhooks(_Shape, frozen=True, kw_only=True):
    """The fields of a webhook configuration that detection reads."""

    metadata: _Metadata
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

    metadata: _Metadata
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

    metadata: _Metadata
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
