"""Computes the resources that batch pods may request on a node.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
calculateOnNode. ``a x b%`` is the double product truncated, with b/100 taken first, as in the reference.
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
