"""What batch pods may ask for on a node.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
calculateOnNode. ``a x b%`` is the double product truncated, with b/100 taken first, as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CalculatePolicy, Colocation
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.node_load import NodeLoad, high_priority
from slacktide.streams.decisions.node_reserved import node_reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResource:
    """Batch CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    cpu_milli: int
    mem_bytes: int
    because: tuple[Because, Because]


@dataclass(slots=True)
class Sums:
    """What high-priority pods asked for and used, of one resource."""

    request: int = 0
    used: int = 0
    max_used_request: int = 0

    def add(self, request: int, used: int | None, *, never_below_request: bool) -> None:
        """Count a pod; None: it has no metric."""
        self.request += request
        if used is None:
            self.used += request
            return
        self.used += request if never_below_request else used
        self.max_used_request += max(request, used)

    def add_dangling(self, used: int) -> None:
        """Count a metric without a pod."""
        self.used += used
        self.max_used_request += used


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
    cpu, mem = Sums(), Sums()
    high = high_priority(load)
    for pod, used in high.pods:
        cpu.add(pod.cpu_milli, used.cpu_milli if used else None, never_below_request=pod.lse)
        mem.add(pod.mem_bytes, used.mem_bytes if used else None, never_below_request=False)
    for used in high.dangling:
        cpu.add_dangling(used.cpu_milli)
        mem.add_dangling(used.mem_bytes)
    return cpu, mem


@dataclass(frozen=True, slots=True)
class Capacity:
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
    # The reference takes any other text for "usage".
    high = {"request": sums.request, "maxUsageRequest": sums.max_used_request}.get(policy, sums.used)
    amount, margin, cap = capacity.amount * capacity.scale, capacity.margin, capacity.cap
    left = amount - margin - kept - high
    terms: Terms = {
        f"capacity_{unit}": amount,
        f"margin_{unit}": margin,
        f"system_{unit}": system,
        f"reserved_{unit}": reserved,
        f"system_or_reserved_{unit}": kept,
        f"high_priority_{unit}": high,
        f"available_{unit}": left,
    }
    if cap is not None:
        terms[f"cap_{unit}"] = cap
    terms[f"batch_{unit}"] = max(left, 0) if cap is None else min(max(left, 0), cap)
    return batch_because(of, unit, terms)


def batch_because(of: str, unit: str, terms: Terms) -> Because:
    """How the terms belong together: those just figured, or those that a record holds."""
    left, value = terms[f"available_{unit}"], terms[f"batch_{unit}"]
    bound = "capped" if value < max(left, 0) else "formula" if left > 0 else "exhausted"
    adds = (f"+capacity_{unit}", f"-margin_{unit}", f"-system_or_reserved_{unit}", f"-high_priority_{unit}")
    return Because(of=of, bound=bound, terms=terms, adds=adds)
