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
from slacktide.streams.decisions.because import Because, Figured, in_unit
from slacktide.streams.decisions.resources.node_load import NodeLoad, high_priority, node_reserved

_TERMS = ("capacity", "margin", "system", "reserved", "system_or_reserved", "high_priority", "available")
_ADDS = ("+capacity", "-margin", "-system_or_reserved", "-high_priority")


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


def batch_resource(load: NodeLoad, colocation: Colocation) -> Figured:
    """Subtract the margin, the system and the usage or requests of high-priority pods from capacity."""
    cpu, mem = _available("", load.facts.capacity, _kept(load), _high_priority_sums(load), colocation)
    return Figured.by("batch", cpu, mem)


def cpu_policy(colocation: Colocation) -> CalculatePolicy:
    """Return the policy for CPU. In the reference "request" is for memory only."""
    return "maxUsageRequest" if colocation.cpu_calculate_policy == "maxUsageRequest" else "usage"


def _high_priority_sums(load: NodeLoad) -> tuple[Sums, Sums]:
    pods, by_uid, dangling = high_priority(load)
    uses = [by_uid.get(uid) for uid in pods.uids]
    used_milli = [None if use is None else use.cpu_milli for use in uses]
    used_bytes = [None if use is None else use.mem_bytes for use in uses]
    cpu: list[Asked] = list(zip(pods.cpu_milli, used_milli, pods.lse, strict=True))
    mem: list[Asked] = list(zip(pods.mem_bytes, used_bytes, repeat(False)))
    cpu += [(0, use.cpu_milli, False) for use in dangling]
    mem += [(0, use.mem_bytes, False) for use in dangling]
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


class Kept(NamedTuple):
    """What the system uses, and what is reserved for it."""

    system: int
    reserved: int


def _kept(load: NodeLoad) -> tuple[Kept, Kept]:
    """Return CPU in millicores and memory in bytes."""
    system, host, reserved = load.system, load.host_use, node_reserved(load.facts)
    cpu = Kept(system.cpu_milli + host.cpu_milli, reserved.cpu_milli or 0)
    return cpu, Kept(system.mem_bytes + host.mem_bytes, reserved.mem_bytes or 0)


def _available(
    path: str,
    amounts: Resources,
    kept: tuple[Kept, Kept],
    sums: tuple[Sums, Sums],
    colocation: Colocation,
    scale: int = 1,
) -> tuple[Because, Because]:
    """Compute CPU, and memory in the unit of ``scale``, of a node or zone."""
    cpu = available(
        of=f"{path}batch_cpu_milli",
        unit="milli",
        capacity=Capacity(
            amounts.cpu_milli or 0, colocation.cpu_reclaim_threshold_pct, colocation.batch_cpu_threshold_pct
        ),
        **kept[0]._asdict(),
        sums=sums[0],
        policy=cpu_policy(colocation),
    )
    mem = available(
        of=f"{path}batch_memory_bytes",
        unit="bytes" if scale == 1 else "millibytes",
        capacity=Capacity(
            amounts.mem_bytes or 0, colocation.mem_reclaim_threshold_pct, colocation.batch_mem_threshold_pct, scale
        ),
        **kept[1]._asdict(),
        sums=sums[1],
        policy=colocation.mem_calculate_policy,
    )
    return cpu, mem


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


def batch_resource_zones(
    load: NodeLoad, colocation: Colocation, zones: Sequence[Zone], zones_of: Mapping[str, Sequence[int]]
) -> list[Figured]:
    """Compute each zone like a node. A pod's amounts are divided over its zones, all others over all zones.

    ``zones_of``: zone ids by uid; unknown ids are ignored, and a pod without ids is in all zones. The result is empty
    unless a zone has CPU or memory.
    """
    if all(zone.allocatable.cpu_milli is None and zone.allocatable.mem_bytes is None for zone in zones):
        return []
    count = len(zones)
    cpu, mem = _asked(load, zones_of, count)
    kept_cpu, kept_mem = _kept(load)
    kept = Kept(*(_part(one, count) for one in kept_cpu)), Kept(*(_part(one * 1000, count) for one in kept_mem))
    return [
        _zone(zone, kept, (sums(of_cpu), sums(of_mem)), colocation)
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
    pods, uses, dangling = high_priority(load)
    for uid, milli, size, lse in pods.rows():
        used = uses.get(uid)
        places = sorted({place for place in zones_of.get(uid, ()) if place in everywhere}) or everywhere
        parts = len(places)
        asked_milli, asked_millibytes = _part(milli, parts), _part(size * 1000, parts)
        used_milli = asked_milli if used is None else _part(used.cpu_milli, parts)
        used_millibytes = asked_millibytes if used is None else _part(used.mem_bytes * 1000, parts)
        for place in places:
            cpu[place].append((asked_milli, used_milli, lse))
            mem[place].append((asked_millibytes, used_millibytes, False))
    for used in dangling:
        for place in everywhere:
            cpu[place].append((0, _part(used.cpu_milli, count), False))
            mem[place].append((0, _part(used.mem_bytes * 1000, count), False))
    return cpu, mem


def _zone(zone: Zone, kept: tuple[Kept, Kept], sums: tuple[Sums, Sums], colocation: Colocation) -> Figured:
    cpu, in_milli = _available(f"zones/{zone.name}/", zone.allocatable, kept, sums, colocation, scale=1000)
    terms: Terms = in_milli.terms | {"batch_bytes": -(-int(in_milli.terms["batch_millibytes"]) // 1000)}
    return Figured.by("batch", cpu, msgspec.structs.replace(in_milli, terms=terms))
