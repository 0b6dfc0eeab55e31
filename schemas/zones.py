"""A node's NUMA zones: what each has, what is left, who is bound there. Topic slacktide.node.zones.v1, key: node.

The node's agent publishes a record when one of its parts changes, and every 5 s as a sign of life.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from slacktide.schemas.bounds import PODS_MAX, Amount, Count, Name, Revision, TimeMs
from slacktide.schemas.message import Message
from slacktide.schemas.sample import Missing

ZONES_MAX = 1024
"""Linux has as many at most."""
ZONES_STALE_S = 15.0
"""A record that was published longer ago holds no more: nobody knows what has become of the zones."""
ZoneId = Annotated[int, Meta(ge=0, le=ZONES_MAX - 1)]
Distance = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]


class ZoneResources(Message, frozen=True, kw_only=True):
    """Amounts in a zone. One that is absent is not the zone's to give; 0 means that nothing of it is left."""

    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    hugepages_bytes: Annotated[dict[str, Amount], Meta(max_length=16)] = {}
    """By page size as Kubernetes names it, such as ``2Mi``."""
    batch_cpu_milli: Amount | None = None
    batch_mem_bytes: Amount | None = None
    devices: Annotated[dict[str, Count], Meta(max_length=1000)] = {}
    """By the name of the resource in Kubernetes."""


class ZoneDistance(Message, frozen=True, kw_only=True):
    """How far a zone is from another, as the firmware states it; 10: from itself."""

    zone: ZoneId
    distance: Distance


class Zone(Message, frozen=True, kw_only=True):
    """A NUMA zone."""

    id: ZoneId
    allocatable: ZoneResources
    """What the kubelet may give to pods."""
    available: ZoneResources
    """What of it no pod holds for itself."""
    distances: Annotated[list[ZoneDistance], Meta(max_length=ZONES_MAX)] = []


class BoundPod(Message, frozen=True, kw_only=True):
    """A pod that the record counts."""

    uid: Name
    zones: Annotated[list[ZoneId], Meta(max_length=ZONES_MAX)] = []
    """Where it holds CPUs, memory or devices for itself, ascending; none: it holds none."""


class NodeZones(Message, frozen=True, kw_only=True):
    """The zones of a node, and what its kubelet makes of them. A null value: the node is gone."""

    node: Name
    boot_id: Revision
    """Of the agent's start; compares as text, the higher start wins."""
    seq: Count
    observed_ms: TimeMs
    zones: Annotated[list[Zone], Meta(max_length=ZONES_MAX)]
    """By id, ascending."""
    policy: Policy | None
    """The topology manager's; None: not known."""
    scope: Scope | None
    """The topology manager's; None: not known."""
    max_zones: Annotated[int, Meta(ge=1, le=ZONES_MAX)] = 8
    """More zones than these the topology manager refuses."""
    prefer_closest: bool = False
    cpu_static: bool | None
    """Whether the CPU manager's policy is static; None: not known."""
    memory_static: bool | None
    """Whether the memory manager's policy is Static; None: not known."""
    pods: Annotated[list[BoundPod], Meta(max_length=PODS_MAX)] = []
    """The pods that are counted in what is available, by uid."""
    missing: list[Missing] = []
    """What could not be read, and why."""
