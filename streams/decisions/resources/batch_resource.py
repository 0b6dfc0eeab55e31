"""What batch pods may ask for on a node.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
calculateOnNode. ``a x b%`` is the double product truncated, with b/100 taken first, as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple, TypeAlias

import msgspec

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CalculatePolicy, Colocation
from slacktide.streams.decisions.because import Because, in_unit
from slacktide.streams.decisions.resources.node_load import NodeLoad, high_priority
from slacktide.streams.decisions.resources.node_reserved import node_reserved

_TERMS = ("capacity", "margin", "system", "reserved", "system_or_reserved", "high_priority", "available")
_ADDS = ("+capacity", "-margin", "-system_or_reserved", "-high_priority")


class BatchResource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Batch CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    cpu_milli: int
    mem_bytes: int
    because: tuple[Because, Because]


Asked: TypeAlias = tuple[int, int | None, bool]
"""What one pod asked for and used (None: it has no metric), of one resource, and whether it never counts less than it
asked for. A metric without a pod asked for nothing."""


class Sums(NamedTuple):
    """What high-priority pods asked for and used, of one resource."""

    request: int
    used: int
    max_used_request: int

    def by(self, policy: CalculatePolicy) -> int:
        """What of it a policy takes off: the reference takes any other text for "usage"."""
        return {"request": self.request, "maxUsageRequest": self.max_used_request}.get(policy, self.used)


def sums(pods: Iterable[Asked]) -> Sums:
    """All of them together."""
    requests = uses = larger = 0
    for request, used, never_below_request in pods:
        requests += request
        if used is None:
            uses += request
            continue
        uses += request if never_below_request else used
        larger += request if request > used else used  # noqa: FURB136 - a call a pod is what this costs
    return Sums(request=requests, used=uses, max_used_request=larger)


def batch_resource(load: NodeLoad, colocation: Colocation) -> BatchResource:
    """Capacity less margin, system and what high-priority pods use (or asked for, by policy)."""
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
    """By request is memory's alone in the reference."""
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
    """An amount, what of it is not sold, and what of it at most is (None: no cap).

    ``scale`` is for memory in a zone, which is reckoned in thousandths of bytes while percents are taken of bytes.
    """

    amount: int
    reclaim_pct: int
    cap_pct: int | None
    scale: int = 1

    @property
    def margin(self) -> int:
        """Negative where more than everything is sold."""
        return int(self.amount * ((100 - self.reclaim_pct) / 100)) * self.scale

    @property
    def cap(self) -> int | None:
        """The most that is sold."""
        return None if self.cap_pct is None else int(self.amount * (self.cap_pct / 100)) * self.scale


def available(
    *, of: str, unit: str, capacity: Capacity, system: int, reserved: int, sums: Sums, policy: CalculatePolicy
) -> Because:
    """One resource of a node or zone. The result is the last term."""
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
    """How the terms belong together: those just figured, or those that a record holds."""
    left, value = (terms[name] for name in in_unit(unit, "available", "batch"))
    bound = "capped" if value < max(left, 0) else "formula" if left > 0 else "exhausted"
    return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, *_ADDS))
