"""Computes the resources that batch pods may request on a node, and in each of its NUMA zones.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, calculateOnNode,
calculateOnNUMALevel. ``a x b%`` is the double product truncated, with b/100 taken first, as in the reference. Zones
divide amounts in thousandths (millicores, thousandths of bytes) and round up, as in the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CalculatePolicy, Colocation
from slacktide.streams.decisions.because import Because, in_unit
from slacktide.streams.decisions.resources.node_load import NodeLoad, high_priority, node_reserved

_TERMS = ("capacity", "margin", "system", "reserved", "system_or_reserved", "high_priority", "available")
_ADDS = ("+capacity", "-margin", "-system_or_reserved", "-high_priority")


class BatchResource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Batch CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    cpu_milli: int
    mem_bytes: int
    because: tuple[Because, Because]


Asked: TypeAlias = tuple[int, int | None, bool]
"""A pod's request, its usage (None: no metric), and whether its whole request counts as used."""


class Sums(NamedTuple):
    """Requests and usage of high-priority pods, of one resource."""

    request: int
    used: int
    max_used_request: int

    def by(self, policy: CalculatePolicy) -> int:
        """Return the amount that a policy subtracts. As in the reference, any other text means "usage"."""
        return {"request": self.request, "maxUsageRequest": self.max_used_request}.get(policy, self.used)


def sums(pods: Iterable[Asked]) -> Sums:
    """Add up the pods. Without a metric a request counts as used, but not in ``max_used_request``."""
    requests = uses = larger = 0
    for request, used, never_below_request in pods:
        requests += request
        if used is None:
            uses += request
            continue
        uses += request if never_below_request else used
        larger += request if request > used else used  # noqa: FURB136 - avoids one call per pod
    return Sums(request=requests, used=uses, max_used_request=larger)


def batch_resource(load: NodeLoad, colocation: Colocation) -> BatchResource:
    """Subtract the margin, the system and the usage or requests of high-priority pods from capacity."""
    cpu, mem = _high_priority_sums(load)
    facts, reserved = load.facts, node_reserved(load.facts)
    capacity_milli, capacity_bytes = facts.capacity.cpu_milli or 0, facts.capacity.mem_bytes or 0
    because_cpu = available(
        of="batch_cpu_milli",
        unit="milli",
        capacity=Capacity(capacity_milli, colocation.cpu_reclaim_threshold_pct, colocation.batch_cpu_threshold_pct),
        system=load.system.cpu_milli + load.host_use.cpu_milli,
        reserved=reserved.cpu_milli or 0,
        sums=cpu,
        policy=cpu_policy(colocation),
    )
    because_mem = available(
        of="batch_memory_bytes",
        unit="bytes",
        capacity=Capacity(capacity_bytes, colocation.mem_reclaim_threshold_pct, colocation.batch_mem_threshold_pct),
        system=load.system.mem_bytes + load.host_use.mem_bytes,
        reserved=reserved.mem_bytes or 0,
        sums=mem,
        policy=colocation.mem_calculate_policy,
    )
    return BatchResource(
        cpu_milli=int(because_cpu.terms["batch_milli"]),
        mem_bytes=int(because_mem.terms["batch_bytes"]),
        because=(because_cpu, because_mem),
    )


def cpu_policy(colocation: Colocation) -> CalculatePolicy:
    """Return the policy for CPU. In the reference "request" is for memory only."""
    return "maxUsageRequest" if colocation.cpu_calculate_policy == "maxUsageRequest" else "usage"


def _high_priority_sums(load: NodeLoad) -> tuple[Sums, Sums]:
    high = high_priority(load)
    uses = [high.uses.get(uid) for uid in high.pods.uids]
    used_milli = [None if use is None else use.cpu_milli for use in uses]
    used_bytes = [None if use is None else use.mem_bytes for use in uses]
    cpu: list[Asked] = list(zip(high.pods.cpu_milli, used_milli, high.pods.lse, strict=True))
    mem: list[Asked] = list(zip(high.pods.mem_bytes, used_bytes, repeat(False)))
    cpu += [(0, use.cpu_milli, False) for use in high.dangling]
    mem += [(0, use.mem_bytes, False) for use in high.dangling]
    return sums(cpu), sums(mem)


class Capacity(msgspec.Struct, frozen=True, gc=False):
    """An amount with its reclaim threshold and its cap in percent (None: no cap).

    ``scale`` is 1000 for a zone's memory: percents apply to bytes, and the result is in thousandths of bytes.
    """

    amount: int
    reclaim_pct: int
    cap_pct: int | None
    scale: int = 1

    @property
    def margin(self) -> int:
        """The amount kept back; negative if ``reclaim_pct`` is above 100."""
        return int(self.amount * ((100 - self.reclaim_pct) / 100)) * self.scale

    @property
    def cap(self) -> int | None:
        """The maximum batch amount."""
        return None if self.cap_pct is None else int(self.amount * (self.cap_pct / 100)) * self.scale


def available(
    *, of: str, unit: str, capacity: Capacity, system: int, reserved: int, sums: Sums, policy: CalculatePolicy
) -> Because:
    """Compute one resource of a node or zone. The result is the last term."""
    kept = reserved if policy == "request" else max(system, reserved)
    high = sums.by(policy)
    amount, margin, cap = capacity.amount * capacity.scale, capacity.margin, capacity.cap
    left = amount - margin - kept - high
    terms: Terms = dict(zip(in_unit(unit, *_TERMS), (amount, margin, system, reserved, kept, high, left), strict=True))
    capped, sold = in_unit(unit, "cap", "batch")
    if cap is not None:
        terms[capped] = cap
    terms[sold] = max(left, 0) if cap is None else min(max(left, 0), cap)
    return batch_because(of, unit, terms)


def batch_because(of: str, unit: str, terms: Terms) -> Because:
    """Build the reason from computed or recorded terms."""
    left, value = (terms[name] for name in in_unit(unit, "available", "batch"))
    bound = "capped" if value < max(left, 0) else "formula" if left > 0 else "exhausted"
    return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, *_ADDS))


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
