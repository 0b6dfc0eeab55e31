"""The kind NodeResourceTopology, as an agent's record of its node's zones has it, and when it is written. Pure.

Field names: NodeResourceTopology API v0.1.2, v1alpha2. Its readers know zones as ``node-<id>`` of type ``Node``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slacktide.agents.cluster.bridge.pace import Budget, share
from slacktide.agents.kubernetes import NODE_RESOURCE_TOPOLOGIES
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.schemas.zones import NodeZones, Zone, ZoneResources

Json = dict[str, object]
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "slacktide"
FRESH_S = 15.0
"""An older record is not written: nobody knows what has become of the zones."""


def body_of(record: NodeZones) -> Json:
    """What of the object follows from the record."""
    settings = {
        "topologyManagerPolicy": record.policy,
        "topologyManagerScope": record.scope,
        "topologyManagerMaxNUMANodes": record.max_zones,
    }
    return {
        "attributes": [{"name": name, "value": str(value)} for name, value in settings.items() if value is not None],
        "zones": [_zone(zone) for zone in record.zones],
    }


def created(node: str, uid: str, body: Json) -> Json:
    """The object as it is made; it goes with its node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": "NodeResourceTopology",
        "metadata": {"name": node, "labels": {MANAGED_BY: MANAGER}, "ownerReferences": [owner]},
        **body,
    }


def _zone(zone: Zone) -> Json:
    """The record has no capacity beside what pods may get: the kind asks for both."""
    allocatable, available = _texts(zone.allocatable), _texts(zone.available)
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
    """The body as it was written last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWrite:
    """One write that is due."""

    node: str
    uid: str
    body: Json
    first: bool
    """The bridge has not written this object before, and does not know whose it is."""


@dataclass(slots=True)
class Topologies:
    """What the bridge knows of zones. Times are monotonic seconds."""

    _nodes: dict[str, _Node] = field(default_factory=dict)

    def take(self, record: NodeZones, now_s: float) -> None:
        """An agent's record; one that is older than what is known, and fresh, is passed over."""
        known = self._nodes.get(record.node)
        if known is None:
            self._nodes[record.node] = _Node(record, now_s, Budget(begun_s=now_s))
            return
        fresh = now_s < known.read_s + FRESH_S
        if not fresh or (record.boot_id, record.seq) >= (known.record.boot_id, known.record.seq):
            known.record, known.read_s = record, max(now_s, known.read_s)

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._nodes.pop(node, None)

    def due(self, uids: Mapping[str, str], now_s: float) -> list[TopologyWrite]:
        """What changed and may be written now, at most a second's share of the nodes.

        Args:
            uids: of the Nodes that Kubernetes has, by name: no object is made for another.
            now_s: the time.

        """
        writes = []
        for name, node in self._nodes.items():
            if name not in uids or now_s >= node.read_s + FRESH_S or not node.budget.allows(now_s, urgent=False):
                continue
            body = body_of(node.record)
            if body != node.written:
                writes.append((-node.budget.since_s(now_s), name, body, node.written is None))
        writes.sort(key=lambda write: write[:2])
        return [
            TopologyWrite(node=name, uid=uids[name], body=body, first=first)
            for _, name, body, first in writes[: share(len(uids))]
        ]

    def wrote(self, write: TopologyWrite, now_s: float, *, done: bool) -> None:
        """It went out, and succeeded or not: a failed one counts, so that nobody is asked at each round."""
        node = self._nodes.get(write.node)
        if node is not None:
            node.budget.wrote(now_s)
            node.written = write.body if done else node.written
