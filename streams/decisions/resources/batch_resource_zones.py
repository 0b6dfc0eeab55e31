"""Computes the resources that batch pods may request in each NUMA zone of a node.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, calculateOnNUMALevel.
Amounts are divided in thousandths (millicores, thousandths of bytes) and rounded up, as in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.batch_resource import Asked, Capacity, Sums, available, cpu_policy, sums
from slacktide.streams.decisions.resources.node_load import NodeLoad, high_priority
from slacktide.streams.decisions.resources.node_reserved import node_reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A NUMA zone. Its id is its index in the list."""

    name: str
    allocatable: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneResource:
    """Batch CPU in millicores and memory in bytes of one zone, each with its arithmetic (CPU first)."""

    name: str
    cpu_milli: int
    mem_bytes: int
    because: tuple[Because, Because]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """A zone's share of the node's system usage and reservation."""

    system_milli: int
    reserved_milli: int
    system_millibytes: int
    reserved_millibytes: int


def batch_resource_zones(
    load: NodeLoad, colocation: Colocation, zones: Sequence[Zone], zones_of: Mapping[str, Sequence[int]]
) -> list[ZoneResource]:
    """Compute each zone like a node. A pod's amounts are divided over its zones, all others over all zones.

    Args:
        load: of the node.
        colocation: the strategy in force.
        zones: all zones of the node; the result is empty unless one has CPU or memory.
        zones_of: zone ids by uid; unknown ids are ignored, and a pod without ids is in all zones.
    """
    if all(zone.allocatable.cpu_milli is None and zone.allocatable.mem_bytes is None for zone in zones):
        return []
    count = len(zones)
    cpu, mem = _asked(load, zones_of, count)
    reserved = node_reserved(load.facts)
    shares = _Shares(
        system_milli=_part(load.system.cpu_milli + load.host_use.cpu_milli, count),
        reserved_milli=_part(reserved.cpu_milli or 0, count),
        system_millibytes=_part((load.system.mem_bytes + load.host_use.mem_bytes) * 1000, count),
        reserved_millibytes=_part((reserved.mem_bytes or 0) * 1000, count),
    )
    return [
        _zone(zone, shares, sums(of_cpu), sums(of_mem), colocation)
        for zone, of_cpu, of_mem in zip(zones, cpu, mem, strict=True)
    ]


def _part(amount: int, parts: int) -> int:
    return ceil(float(amount) / parts)


def _asked(
    load: NodeLoad, zones_of: Mapping[str, Sequence[int]], count: int
) -> tuple[list[list[Asked]], list[list[Asked]]]:
    """Return CPU and memory by zone. Unlike on the node, pods without a metric count in ``max_used_request``."""
    everywhere = range(count)
    cpu: list[list[Asked]] = [[] for _ in everywhere]
    mem: list[list[Asked]] = [[] for _ in everywhere]
    high = high_priority(load)
    for uid, milli, size, lse in high.pods.rows():
        used = high.uses.get(uid)
        places = sorted({place for place in zones_of.get(uid, ()) if place in everywhere}) or everywhere
        parts = len(places)
        asked_milli, asked_millibytes = _part(milli, parts), _part(size * 1000, parts)
        used_milli = asked_milli if used is None else _part(used.cpu_milli, parts)
        used_millibytes = asked_millibytes if used is None else _part(used.mem_bytes * 1000, parts)
        for place in places:
            cpu[place].append((asked_milli, used_milli, lse))
            mem[place].append((asked_millibytes, used_millibytes, False))
    for used in high.dangling:
        for place in everywhere:
            cpu[place].append((0, _part(used.cpu_milli, count), False))
            mem[place].append((0, _part(used.mem_bytes * 1000, count), False))
    return cpu, mem


def _zone(zone: Zone, shares: _Shares, cpu: Sums, mem: Sums, colocation: Colocation) -> ZoneResource:
    milli, size = zone.allocatable.cpu_milli or 0, zone.allocatable.mem_bytes or 0
    because_cpu = available(
        of=f"zones/{zone.name}/batch_cpu_milli",
        unit="milli",
        capacity=Capacity(milli, colocation.cpu_reclaim_threshold_pct, colocation.batch_cpu_threshold_pct),
        system=shares.system_milli,
        reserved=shares.reserved_milli,
        sums=cpu,
        policy=cpu_policy(colocation),
    )
    in_milli = available(
        of=f"zones/{zone.name}/batch_memory_bytes",
        unit="millibytes",
        capacity=Capacity(size, colocation.mem_reclaim_threshold_pct, colocation.batch_mem_threshold_pct, scale=1000),
        system=shares.system_millibytes,
        reserved=shares.reserved_millibytes,
        sums=mem,
        policy=colocation.mem_calculate_policy,
    )
    mem_bytes = -(-int(in_milli.terms["batch_millibytes"]) // 1000)
    terms: Terms = in_milli.terms | {"batch_bytes": mem_bytes}
    because_mem = Because(of=in_milli.of, bound=in_milli.bound, terms=terms, adds=in_milli.adds)
    return ZoneResource(
        name=zone.name,
        cpu_milli=int(because_cpu.terms["batch_milli"]),
        mem_bytes=mem_bytes,
        because=(because_cpu, because_mem),
    )
