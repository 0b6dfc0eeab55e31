"""Computes the resources that batch and free pods may request on a node, and in each of its NUMA zones.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, calculateOnNode,
calculateOnNUMALevel. ``a x b%`` is the double product truncated, with b/100 taken first, as in the reference. Zones
divide amounts in thousandths (millicores, thousandths of bytes) and round up, as in the reference.

``batch_zones`` is Slacktide's own. Its parts never exceed the node's amount, but the sum of ``batch_resource_zones``
may: it computes each zone separately, from equal parts of what no pod is bound to, rounded up. The reference names
koord-free but publishes no resources for it. Free resources also exclude the usage of batch pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec

from slacktide.schemas.inventory import LIVE_PHASES, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CalculatePolicy, Colocation
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.score import use_of
from slacktide.schemas.zones import Zone as RecordedZone
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
    pods, by_uid, dangling = high_priority(load)
    uses = [by_uid.get(uid) for uid in pods.uids]
    used_milli = [None if use is None else use.cpu_milli for use in uses]
    used_bytes = [None if use is None else use.mem_bytes for use in uses]
    of_cpu: list[Asked] = list(zip(pods.cpu_milli, used_milli, pods.lse, strict=True))
    of_mem: list[Asked] = list(zip(pods.mem_bytes, used_bytes, repeat(False)))
    of_cpu += [(0, use.cpu_milli, False) for use in dangling]
    of_mem += [(0, use.mem_bytes, False) for use in dangling]
    cpu, mem = _available("", load.facts.capacity, _kept(load), (sums(of_cpu), sums(of_mem)), colocation)
    return Figured.by("batch", cpu, mem)


def cpu_policy(colocation: Colocation) -> CalculatePolicy:
    """Return the policy for CPU. In the reference "request" is for memory only."""
    return "maxUsageRequest" if colocation.cpu_calculate_policy == "maxUsageRequest" else "usage"


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
    capped, offered = in_unit(unit, "cap", "batch")
    if cap is not None:
        terms[capped] = cap
    terms[offered] = max(left, 0) if cap is None else min(max(left, 0), cap)
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
    found = []
    for zone, of_cpu, of_mem in zip(zones, cpu, mem, strict=True):
        both = sums(of_cpu), sums(of_mem)
        in_milli, in_millibytes = _available(
            f"zones/{zone.name}/", zone.allocatable, kept, both, colocation, scale=1000
        )
        terms: Terms = in_millibytes.terms | {"batch_bytes": -(-int(in_millibytes.terms["batch_millibytes"]) // 1000)}
        found.append(Figured.by("batch", in_milli, msgspec.structs.replace(in_millibytes, terms=terms)))
    return found


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


_ZONE_TERMS = ("node", "free", "held", "of_free", "of_held", "batch")


class Share(NamedTuple):
    """A zone's part of one resource of the node."""

    node: int
    free: int
    """Allocatable amount that no pod holds exclusively."""
    held: int
    """Amount that pods hold exclusively."""
    of_free: int
    of_held: int

    @property
    def amount(self) -> int:
        """Return the part."""
        return self.of_free + self.of_held

    def because(self, of: str, unit: str) -> Because:
        """Return the computation as an explanation."""
        terms: Terms = dict(zip(in_unit(unit, *_ZONE_TERMS), (*self, self.amount), strict=True))
        bound = "held" if self.of_held else "free" if self.of_free else "exhausted"
        return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, "+of_free", "+of_held"))


class ZoneBatch(NamedTuple):
    """A zone's batch CPU in millicores and memory in bytes; None: the zone or the node has no such resource."""

    cpu_milli: Share | None
    mem_bytes: Share | None


def batch_zones(cpu_milli: int | None, mem_bytes: int | None, zones: Sequence[RecordedZone]) -> list[ZoneBatch]:
    """Divide a node's batch CPU (millicores) and memory (bytes) among its zones, in order; None: it has none.

    Batch pods use CPUs that no pod holds exclusively. So the amount is divided in proportion to the free amounts of the
    zones. An amount above these is divided in proportion to the exclusive amounts. Any rest is in no zone.
    """
    cpu = _shares(cpu_milli, [(one.allocatable.cpu_milli, one.available.cpu_milli) for one in zones])
    mem = _shares(mem_bytes, [(one.allocatable.mem_bytes, one.available.mem_bytes) for one in zones])
    return [ZoneBatch(*both) for both in zip(cpu, mem, strict=True)]


def _shares(node: int | None, zones: Sequence[tuple[int | None, int | None]]) -> list[Share | None]:
    if node is None:
        return [None] * len(zones)
    free = [min(available or 0, allocatable or 0) for allocatable, available in zones]
    held = [(allocatable or 0) - left for (allocatable, _), left in zip(zones, free, strict=True)]
    of_free = min(node, sum(free))
    of_held = min(node - of_free, sum(held))
    shares = map(Share, [node] * len(zones), free, held, _parts(of_free, free), _parts(of_held, held))
    return [None if listed is None else share for (listed, _), share in zip(zones, shares, strict=True)]


def _parts(amount: int, rooms: Sequence[int]) -> Iterable[int]:
    """Divide in proportion to the rooms, which must hold the amount. Cumulative sums are rounded down."""
    total = sum(rooms) or 1
    upto = [amount * room // total for room in accumulate(rooms)]
    return [after - before for before, after in pairwise([0, *upto])]


BATCH = "koord-batch"
_FREE_ADDS = ("+capacity", "-margin", "-system_or_reserved", "-high_priority", "-batch_used")


def free_resource(load: NodeLoad, colocation: Colocation) -> Figured:
    """Subtract the margin, system, high-priority and batch usage from capacity.

    The calculation policy is always "usage". A batch pod without a metric counts with its requests.
    """
    by_use = msgspec.structs.replace(
        colocation,
        cpu_calculate_policy="usage",
        mem_calculate_policy="usage",
        batch_cpu_threshold_pct=None,
        batch_mem_threshold_pct=None,
    )
    left_cpu, left_mem = batch_resource(load, by_use).because
    metrics = {metric.uid: metric for metric in load.metrics}
    live = [pod for pod in load.pods if pod.phase in LIVE_PHASES]
    used = []
    for pod in live:
        if effective_priority_class(pod) == BATCH:
            asked, metric = pod.requests, metrics.get(pod.uid)
            unmeasured = asked.batch_cpu_milli or 0, asked.batch_mem_bytes or 0
            used.append(use_of(*unmeasured) if metric is None else metric.use)
    known = {pod.uid for pod in live}
    used += [one.use for uid, one in metrics.items() if uid not in known and one.priority_class == BATCH]
    cpu = _less_batch(left_cpu, "free_cpu_milli", "milli", sum(use.cpu_milli for use in used))
    mem = _less_batch(left_mem, "free_memory_bytes", "bytes", sum(use.mem_bytes for use in used))
    return Figured.by("free", cpu, mem)


def _less_batch(left: Because, of: str, unit: str, used: int) -> Because:
    terms: Terms = {name: value for name, value in left.terms.items() if name != f"batch_{unit}"}
    free = int(terms[f"available_{unit}"]) - used
    return free_because(of, unit, terms | {f"batch_used_{unit}": used, f"free_{unit}": max(0, free)})


def free_because(of: str, unit: str, terms: Terms) -> Because:
    """Build the reason from computed or recorded terms."""
    bound = "formula" if terms[f"free_{unit}"] > 0 else "exhausted"
    return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, *_FREE_ADDS))
