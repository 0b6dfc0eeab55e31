"""Writes Nodes, NodeMetrics and NodeResourceTopologies, in rounds of at most one per second.

Field names of a NodeResourceTopology: API v0.1.2, v1alpha2. Readers expect zones ``node-<id>`` of type ``Node``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.node_status import NAMES, Budget, metric_created, share, shown
from slacktide.agents.cluster.bridge.writing import ShownNode, Write, Writing
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.objects import Node
from slacktide.agents.kubernetes.resource import (
    CONFLICT,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    NOT_FOUND,
    ApiAwayError,
    ApiError,
    ApiRefusedError,
    IgnoreStatus,
)
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.topics import ZONES
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones, Zone, ZoneResources
from slacktide.streams.decisions.resources.batch_resource import ZoneBatch, batch_zones
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record, check_node
from slacktide.streams.tasks import ended

log = logging.getLogger(__name__)

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "slacktide"


def body_of(record: NodeZones, node: ShownNode) -> Json:
    """Return the object's fields from the record and the Node's batch resources."""
    settings = {
        "topologyManagerPolicy": record.policy,
        "topologyManagerScope": record.scope,
        "topologyManagerMaxNUMANodes": record.max_zones,
    }
    batch = batch_zones(node.batch_cpu_milli, node.batch_mem_bytes, record.zones)
    return {
        "attributes": [{"name": name, "value": str(value)} for name, value in settings.items() if value is not None],
        "zones": [_zone(zone, part) for zone, part in zip(record.zones, batch, strict=True)],
    }


def created(node: str, uid: str, body: Json) -> Json:
    """Return a new object, owned by its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": "NodeResourceTopology",
        "metadata": {"name": node, "labels": {MANAGED_BY: MANAGER}, "ownerReferences": [owner]},
        **body,
    }


def _zone(zone: Zone, batch: ZoneBatch) -> Json:
    """Capacity equals allocatable, since the record has no capacity.

    All batch resources count as available, as in Koordinator: batch pods are not bound to a zone.
    """
    found = {"batch_cpu_milli": batch.cpu_milli, "batch_mem_bytes": batch.mem_bytes}
    parts = {NAMES[field]: str(share.amount) for field, share in found.items() if share is not None}
    allocatable, available = _texts(zone.allocatable) | parts, _texts(zone.available) | parts
    return {
        "name": f"node-{zone.id}",
        "type": "Node",
        "costs": [{"name": f"node-{one.zone}", "value": one.distance} for one in zone.distances],
        "resources": [
            {"name": name, "capacity": text, "allocatable": text, "available": available.get(name, "0")}
            for name, text in allocatable.items()
        ],
    }


def _texts(resources: ZoneResources) -> dict[str, str]:
    found = {} if resources.cpu_milli is None else {"cpu": cpu_text(resources.cpu_milli)}
    found |= {} if resources.mem_bytes is None else {"memory": mem_text(resources.mem_bytes)}
    found |= {f"hugepages-{size}": mem_text(amount) for size, amount in resources.hugepages_bytes.items()}
    return found | {name: str(count) for name, count in resources.devices.items()}


@dataclass(slots=True)
class _Node:
    record: NodeZones
    read_s: float
    budget: Budget
    written: Json | None = None
    alike: tuple[NodeZones, ShownNode] | None = None
    """The inputs of that body: comparing them is cheaper than building it each second."""

    def changed(self, shown: ShownNode) -> Json | None:
        """Return the body, if it changed."""
        if self.alike is not None and self.alike[0] is self.record and self.alike[1] == shown:
            return None
        body = body_of(self.record, shown)
        if body != self.written:
            return body
        self.alike = self.record, shown
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWrite:
    """A write that is due."""

    node: str
    uid: str
    body: Json
    first: bool
    """The bridge has not written this object yet, and does not know its owner."""


@dataclass(slots=True)
class Topologies:
    """Zones of all nodes; stale records are not written. Times are monotonic seconds."""

    _nodes: dict[str, _Node] = field(default_factory=dict)

    def take(self, record: NodeZones, now_s: float) -> None:
        """Add an agent's record, unless a newer one is fresh."""
        known = self._nodes.get(record.node)
        if known is None:
            self._nodes[record.node] = _Node(record, now_s, Budget(begun_s=now_s))
            return
        fresh = now_s < known.read_s + ZONES_STALE_S
        if not fresh or (record.boot_id, record.seq) >= (known.record.boot_id, known.record.seq):
            known.record, known.read_s = record, max(now_s, known.read_s)

    def forget(self, node: str) -> None:
        """Forget a removed node."""
        self._nodes.pop(node, None)

    def due(self, nodes: Mapping[str, ShownNode], now_s: float) -> list[TopologyWrite]:
        """Return due writes, limited to a second's share of the nodes. No object is created for missing Nodes."""
        writes = []
        for name, node in self._nodes.items():
            if name not in nodes or now_s >= node.read_s + ZONES_STALE_S or not node.budget.allows(now_s, urgent=False):
                continue
            body = node.changed(nodes[name])
            if body is not None:
                writes.append((-node.budget.since_s(now_s), name, body, node.written is None))
        writes.sort(key=lambda write: write[:2])
        return [
            TopologyWrite(node=name, uid=nodes[name].uid, body=body, first=first)
            for _, name, body, first in writes[: share(len(nodes))]
        ]

    def wrote(self, write: TopologyWrite, now_s: float, *, done: bool) -> None:
        """Note a write, successful or not, for the rate limit."""
        node = self._nodes.get(write.node)
        if node is not None:
            node.budget.wrote(now_s, unforced=done)
            node.written, node.alike = write.body if done else node.written, None


ROUND_S = 1.0
AT_ONCE = 8
PAUSE_MAX_S = 30.0
TOO_MANY = 429


class Mirror:
    """The only writer of Nodes and NodeMetrics."""

    def __init__(self, writing: Writing, clock: Clock) -> None:
        self.trouble = ""
        """Why the last write failed; "": it succeeded."""
        self._writing, self._clock = writing, clock
        self._few = asyncio.Semaphore(AT_ONCE)
        self._backoff = Backoff(ROUND_S, PAUSE_MAX_S)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled. After errors or a Retry-After it waits from one second up to 30 s."""
        pause_s = 0.0
        while True:
            begun_s = mono_s(self._clock)
            due = self._writing.due(begun_s)
            waits = await asyncio.gather(*(self._write(api, write) for write in due))
            if due and (asked_s := max(waits)):
                pause_s = min(PAUSE_MAX_S, asked_s + self._backoff.next_s())
            elif due:
                pause_s = 0.0
                self._backoff.reset()
            rest_s = begun_s + ROUND_S - mono_s(self._clock)
            await asyncio.sleep(max(0.0, rest_s, pause_s))

    async def _write(self, api: ApiServer, write: Write) -> float:
        """Write once; returns how long to wait before the next request."""
        async with self._few:
            try:
                if write.kind == "status":
                    node = await api.patch(NODES, write.node, write.body, Node, sub="status")
                    shows = shown(node.status.capacity, node.status.allocatable)
                    self._writing.shows(write.node, shows)
                    metrics.offers(write.node, shows.allocatable)
                    log.debug("batch and mid resources written", extra={"node": write.node, "why": write.reason})
                else:
                    await self._metric(api, write)
            except ApiError as exc:
                return self._failed(write, exc)
        self._writing.wrote(write, mono_s(self._clock), done=True)
        metrics.WRITES.labels(write.kind, "done").inc()
        self.trouble = ""
        return 0.0

    async def _metric(self, api: ApiServer, write: Write) -> None:
        with IgnoreStatus(NOT_FOUND):
            await api.patch(NODE_METRICS, write.node, write.body, dict, sub="status")
            return
        with IgnoreStatus(CONFLICT):
            await api.create(NODE_METRICS, metric_created(write.node, write.uid), dict)
        await api.patch(NODE_METRICS, write.node, write.body, dict, sub="status")

    def _failed(self, write: Write, exc: ApiError) -> float:
        self._writing.wrote(write, mono_s(self._clock), done=False)
        away = isinstance(exc, ApiAwayError)
        metrics.WRITES.labels(write.kind, "away" if away else "refused").inc()
        if isinstance(exc, ApiRefusedError) and exc.status == NOT_FOUND and write.kind == "status":
            self.trouble = ""
            return 0.0  # the node was deleted; the watch will report it
        if not self.trouble:
            log.warning("a write failed", extra={"node": write.node, "what": write.kind, "why": str(exc)})
        self.trouble = str(exc)
        if isinstance(exc, ApiRefusedError):
            return max(ROUND_S, exc.retry_after_s) if exc.status == TOO_MANY or exc.status >= 500 else 0.0
        return ROUND_S


LOOK_S = 60.0
"""Interval for checking whether the cluster has the kind."""
BACK_MS = 6_000
"""How far to read back: agents publish every 5 s."""


class TopologyMirror:
    """The only writer of its own objects. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Callable[[], Mapping[str, ShownNode]],
        to_dead_letter: Callable[[Record, str], None],
        clock: Clock,
    ) -> None:
        self._failed: dict[str, str] = {}
        """Why the last write failed, by node."""
        self._topologies = Topologies()
        self._reader = TailReader(
            cluster, (ZONES.name,), client_id="slacktide-bridge-zones", back_ms=BACK_MS, now_ms=clock.wall_ms
        )
        self._following = Following(self._reader, away="zones are not written", clock=clock)
        self._nodes, self._to_dead_letter, self._clock = nodes, to_dead_letter, clock

    @property
    def trouble(self) -> str:
        """Why a node's last write failed, for the first such node; "": all succeeded."""
        nodes = self._nodes()
        return next((why for node, why in self._failed.items() if node in nodes), "")

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled. Zones are read only while the cluster has the kind."""
        while True:
            if await self._is_installed(api):
                log.info("the cluster serves NodeResourceTopology: writing zones")
                reading = asyncio.create_task(self._following.run(lambda: None, self._read))
                try:
                    await self._write_all(api)
                finally:
                    await ended(reading)
            await asyncio.sleep(LOOK_S)

    async def _is_installed(self, api: ApiServer) -> bool:
        try:
            return f'"{NODE_RESOURCE_TOPOLOGIES.plural}"' in await api.text(NODE_RESOURCE_TOPOLOGIES.group_path)
        except ApiError:
            return False

    async def _write_all(self, api: ApiServer) -> None:
        """Write due objects each second until the kind is deleted."""
        looked_s = mono_s(self._clock)
        while True:
            for write in self._topologies.due(self._nodes(), mono_s(self._clock)):
                await self._write(api, write)
            await asyncio.sleep(ROUND_S)
            if mono_s(self._clock) >= looked_s + LOOK_S:
                looked_s = mono_s(self._clock)
                if not await self._is_installed(api):
                    return

    async def _write(self, api: ApiServer, write: TopologyWrite) -> None:
        try:
            if write.first:
                await self._take(api, write)
            else:
                await api.patch(NODE_RESOURCE_TOPOLOGIES, write.node, write.body, dict)
        except ApiError as exc:
            self._topologies.wrote(write, mono_s(self._clock), done=False)
            metrics.WRITES.labels("topology", "away" if isinstance(exc, ApiAwayError) else "refused").inc()
            if write.node not in self._failed:
                log.warning("cannot write zones", extra={"node": write.node, "why": str(exc)})
            self._failed[write.node] = str(exc)
            return
        self._topologies.wrote(write, mono_s(self._clock), done=True)
        metrics.WRITES.labels("topology", "done").inc()
        self._failed.pop(write.node, None)

    async def _take(self, api: ApiServer, write: TopologyWrite) -> None:
        """Create the object, or continue one of an earlier leader; another exporter's object is left alone."""
        kind = NODE_RESOURCE_TOPOLOGIES
        try:
            there = await api.get(kind, write.node, dict[str, Any])
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
            await api.create(kind, created(write.node, write.uid, write.body), dict)
            return
        if ((there.get("metadata") or {}).get("labels") or {}).get(MANAGED_BY) != MANAGER:
            raise ForeignTopologyError(
                f"NodeResourceTopology {write.node} belongs to another exporter, because it has no label "
                f"{MANAGED_BY}={MANAGER}. Either keep that exporter, or stop it and delete the object"
            )
        await api.patch(kind, write.node, write.body, dict)

    async def _read(self, records: list[Record], now_s: float) -> None:
        for record in records:
            node = (record.key or b"").decode(errors="replace")
            if record.value is None:
                self._topologies.forget(node)
                continue
            try:
                zones = decode(record.value, NodeZones)
                check_node(node, zones.node, "NodeZones")
                self._topologies.take(zones, now_s)
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                self._to_dead_letter(record, failure("publish to Kubernetes", exc))


class ForeignTopologyError(ApiError):
    """The object belongs to another exporter."""


Json = dict[str, object]
