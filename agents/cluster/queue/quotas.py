"""Writes the reclaimed capacity of nodes to ClusterQueues that opt in, on clusters where Kueue admits.

The amounts are the decider's, damped, from the spec topic. They go to ``status.effectiveQuotas`` if Kueue has the
field, else to ``nominalQuota``. Each ClusterQueue is written at most once a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.kinds import GROUP
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, ApiError, ApiRefusedError, Resource
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, CaseError
from slacktide.schemas.queue import QueueSpec
from slacktide.schemas.queue_objects import Metadata, SoldObject, SoldSpec
from slacktide.streams.decisions.queue.flavor_match import QUOTA_OF, effective_groups
from slacktide.streams.records import Record, text_of

log = logging.getLogger(__name__)

Json = dict[str, Any]
EVERY_S = 60.0
FIELD = "effectiveQuotas"
OWNER = {"apiGroup": "slacktide.io", "kind": "Queue", "name": "slacktide"}


class Quotas:
    """Writes quotas during one leader term."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sold: dict[str, SoldSpec] = {}
        self._written_s: dict[str, float] = {}

    def read(self, record: Record) -> None:
        """Take a record of the spec topic."""
        kind, _, flavor = text_of(record.key or b"").partition("/")
        if kind != "Sold":
            return
        if record.value is None:
            self._sold.pop(flavor, None)
            return
        try:
            one = decode(record.value, QueueSpec).sold
        except BadMessageError:
            return  # the former amount remains in force
        if one is not None:
            self._sold[flavor] = one.spec

    @property
    def sold(self) -> list[SoldObject]:
        """Return the batch resources of each flavor's nodes."""
        return [SoldObject(metadata=Metadata(name=flavor), spec=spec) for flavor, spec in self._sold.items()]

    async def write(self, api: ApiServer, queues: Resource) -> None:
        """Write the quotas that differ; rejected writes are logged and retried. Raises ApiError."""
        if not self._sold:
            return
        asking = [one for one in (await api.list(queues, dict)).items if QUOTA_OF in _annotations(one)]
        due = [one for one in asking if self._is_due(one["metadata"]["name"])]
        field = await _field(api, queues) if due else {}
        for one in due:
            await self._write(api, queues, one, field)

    def _is_due(self, name: str) -> bool:
        return mono_s(self._clock) >= self._written_s.get(name, -EVERY_S) + EVERY_S

    async def _write(self, api: ApiServer, queues: Resource, one: Json, field: Json) -> None:
        name = one["metadata"]["name"]
        own = one["spec"].get("resourceGroups") or []
        try:
            groups = effective_groups(own, _annotations(one), self._sold, name)
        except CaseError as exc:
            log.warning("the quota of a ClusterQueue does not follow batch resources", extra={"why": str(exc)})
            return
        stands = ((one.get("status") or {}).get(FIELD) or {}).get("resourceGroups") if field else own
        if groups is None or groups == stands:
            return
        body: Json = {"metadata": {"resourceVersion": one["metadata"]["resourceVersion"]}}
        if field:
            body["status"] = {FIELD: self._effective(groups, field)}
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

    def _effective(self, groups: list[Json], field: Json) -> Json:
        now = datetime.fromtimestamp(self._clock.wall_ms() // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        given: Json = {"resourceGroups": groups, "orchestratorRef": OWNER, "lastUpdateTime": now}
        return {name: value for name, value in given.items() if name in field}


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
