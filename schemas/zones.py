"""A node's NUMA zones with free resources and bound pods. Topic slacktide.node.zones.v1, key: node.

The node's agent publishes a record on every change, and every 5 s as a sign of life.
"""

from typing import Annotated, Literal

from msgspec import Meta

from slacktide.schemas.bounds import PODS_MAX, Amount, Count, Name, Revision, TimeMs, TopologyId
from slacktide.schemas.message import Message
from slacktide.schemas.sample import CpuSet, Missing

ZONES_MAX = 1024
"""Linux' maximum."""
ZONES_STALE_S = 15.0
"""Older records are stale."""
ZoneId = Annotated[int, Meta(ge=0, le=ZONES_MAX - 1)]
Distance = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]


class ZoneResources(Message, frozen=True, kw_only=True):
    """Amounts in a zone. Absent: the zone does not have the resource. 0: nothing of it is left."""

    cpu_milli: Amount | None = None
    mem_bytes: Amount | None = None
    hugepages_bytes: Annotated[dict[str, Amount], Meta(max_length=16)] = {}
    """By page size as Kubernetes names it, such as ``2Mi``."""
    batch_cpu_milli: Amount | None = None
    batch_mem_bytes: Amount | None = None
    devices: Annotated[dict[str, Count], Meta(max_length=1000)] = {}
    """By Kubernetes resource name."""


class ZoneDistance(Message, frozen=True, kw_only=True):
    """Distance to a zone, from the firmware; 10: to itself."""

    zone: ZoneId
    distance: Distance


class Zone(Message, frozen=True, kw_only=True):
    """A NUMA zone."""

    id: ZoneId
    allocatable: ZoneResources
    """What the kubelet can assign to pods."""
    available: ZoneResources
    """The part of it that is not assigned exclusively to a pod."""
    distances: Annotated[list[ZoneDistance], Meta(max_length=ZONES_MAX)] = []
    cores: Annotated[dict[TopologyId, list[CpuSet]], Meta(max_length=ZONES_MAX)] = {}
    """By socket the CPUs of each core that are online; empty: unknown, or a zone of memory only."""


class BoundPod(Message, frozen=True, kw_only=True):
    """A pod counted in the record."""

    uid: Name
    zones: Annotated[list[ZoneId], Meta(max_length=ZONES_MAX)] = []
    """Zones in which it has exclusive CPUs, memory or devices, ascending."""


class NodeZones(Message, frozen=True, kw_only=True):
    """The zones of a node, and its kubelet's settings for them. A null value: the node is gone."""

    node: Name
    boot_id: Revision
    """Of the agent's start. Compared as text; the highest is the newest start."""
    seq: Count
    observed_ms: TimeMs
    zones: Annotated[list[Zone], Meta(max_length=ZONES_MAX)]
    """By id, ascending."""
    policy: Policy | None
    """Of the topology manager; None: unknown."""
    scope: Scope | None
    """Of the topology manager; None: unknown."""
    max_zones: Annotated[int, Meta(ge=1, le=ZONES_MAX)] = 8
    """The topology manager refuses more zones."""
    prefer_closest: bool = False
    cpu_static: bool | None
    """Whether the CPU manager's policy is static; None: unknown."""
    memory_static: bool | None
    """Whether the memory manager's policy is Static; None: unknown."""
    pods: Annotated[list[BoundPod], Meta(max_length=PODS_MAX)] = []
    """Pods counted in ``available``, by uid."""
    missing: list[Missing] = []
    """What could not be read, and why."""
