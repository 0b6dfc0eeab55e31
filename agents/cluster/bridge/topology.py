"""NodeResourceTopology objects from an agent's record of its node's zones, and when to write them. Pure.

Field names: NodeResourceTopology API v0.1.2, v1alpha2. Readers expect zones ``node-<id>`` of type ``Node``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slacktide.agents.cluster.bridge.node_status import NAMES, Budget, share
from slacktide.agents.kubernetes.resource import NODE_RESOURCE_TOPOLOGIES
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones, Zone, ZoneResources
from slacktide.streams.decisions.resources.batch_resource import ZoneBatch, batch_zones

Json = dict[str, object]
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "slacktide"


class ShownNode(NamedTuple):
    """The fields of a Node that its topology needs."""

    uid: str
    batch_cpu_milli: int | None = None
    """Allocatable in the Node's status; None: none."""
    batch_mem_bytes: int | None = None


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
    parts = _batch_texts(batch)
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


def _batch_texts(batch: ZoneBatch) -> dict[str, str]:
    found = {"batch_cpu_milli": batch.cpu_milli, "batch_mem_bytes": batch.mem_bytes}
    return {NAMES[field]: str(share.amount) for field, share in found.items() if share is not None}


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
            node.budget.wrote(now_s)
            node.written, node.alike = write.body if done else node.written, None
