"""What batch pods may ask for on a node, at node level.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
calculateOnNode. ``a x b%`` is the double product truncated, with b/100 taken first, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.policy.strategies import CalculatePolicy, Colocation
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.streams.decisions.node_reserved import node_reserved

LOW_CLASSES = frozenset({"koord-batch", "koord-free"})
NOTHING = Use(cpu_milli=0, mem_bytes=0)
_LIVE_PHASES = frozenset({"Running", "Pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResource:
    """Batch CPU in millicores and memory in bytes, each with its terms."""

    cpu_milli: int
    mem_bytes: int
    cpu_terms: Terms
    mem_terms: Terms


@dataclass(slots=True)
class _Sums:
    """What high-priority pods asked for and used, of one resource."""

    request: int = 0
    used: int = 0
    max_used_request: int = 0

    def add(self, request: int, used: int | None, *, never_below_request: bool) -> None:
        self.request += request
        if used is None:
            self.used += request
            return
        self.used += request if never_below_request else used
        self.max_used_request += max(request, used)

    def add_dangling(self, used: int) -> None:
        self.used += used
        self.max_used_request += used


def batch_resource(
    *,
    facts: NodeFacts,
    pods: Sequence[Pod],
    metrics: Sequence[PodMetric],
    system: Use,
    colocation: Colocation,
    host_use: Use = NOTHING,
) -> BatchResource:
    """Capacity less margin, system and what high-priority pods use (or asked for, by policy).

    Args:
        facts: capacity, allocatable and reservation of the node.
        pods: its pods; those neither Running nor Pending do not count.
        metrics: their windowed averages, by uid; the last one of a uid wins. One without a pod counts
            as high priority unless its class is batch or free.
        system: node use that no pod accounts for.
        colocation: thresholds and calculation policies.
        host_use: use of production and mid host applications.

    """
    cpu, mem = _high_priority_sums(pods, {metric.uid: metric for metric in metrics})
    reserved = node_reserved(facts)
    cpu_milli, cpu_terms = _available(
        capacity=facts.capacity.cpu_milli or 0,
        reclaim_pct=colocation.cpu_reclaim_threshold_pct,
        system=system.cpu_milli + host_use.cpu_milli,
        reserved=reserved.cpu_milli or 0,
        sums=cpu,
        # By request is memory's alone in the reference.
        policy="maxUsageRequest" if colocation.cpu_calculate_policy == "maxUsageRequest" else "usage",
        cap_pct=colocation.batch_cpu_threshold_pct,
        unit="milli",
    )
    mem_bytes, mem_terms = _available(
        capacity=facts.capacity.mem_bytes or 0,
        reclaim_pct=colocation.mem_reclaim_threshold_pct,
        system=system.mem_bytes + host_use.mem_bytes,
        reserved=reserved.mem_bytes or 0,
        sums=mem,
        policy=colocation.mem_calculate_policy,
        cap_pct=colocation.batch_mem_threshold_pct,
        unit="bytes",
    )
    return BatchResource(cpu_milli=cpu_milli, mem_bytes=mem_bytes, cpu_terms=cpu_terms, mem_terms=mem_terms)


def _high_priority_sums(pods: Sequence[Pod], metrics: dict[str, PodMetric]) -> tuple[_Sums, _Sums]:
    cpu, mem = _Sums(), _Sums()
    known = set()
    for pod in pods:
        if pod.phase not in _LIVE_PHASES:
            continue
        known.add(pod.uid)
        if effective_priority_class(pod) in LOW_CLASSES:
            continue
        metric = metrics.get(pod.uid)
        lse = effective_qos(pod.qos_label, pod.kube_qos) == "LSE"
        used = metric.use if metric else None
        cpu.add(pod.requests.cpu_milli or 0, used.cpu_milli if used else None, never_below_request=lse)
        mem.add(pod.requests.mem_bytes or 0, used.mem_bytes if used else None, never_below_request=False)
    for uid, metric in metrics.items():
        if uid not in known and metric.priority_class not in LOW_CLASSES:
            cpu.add_dangling(metric.use.cpu_milli)
            mem.add_dangling(metric.use.mem_bytes)
    return cpu, mem


def _available(
    *,
    capacity: int,
    reclaim_pct: int,
    system: int,
    reserved: int,
    sums: _Sums,
    policy: CalculatePolicy,
    cap_pct: int | None,
    unit: str,
) -> tuple[int, Terms]:
    margin = int(capacity * ((100 - reclaim_pct) / 100))
    kept = reserved if policy == "request" else max(system, reserved)
    # The reference takes any other text for "usage".
    high = {"request": sums.request, "maxUsageRequest": sums.max_used_request}.get(policy, sums.used)
    value = max(0, capacity - margin - kept - high)
    terms: Terms = {
        f"capacity_{unit}": capacity,
        f"margin_{unit}": margin,
        f"system_or_reserved_{unit}": kept,
        f"high_priority_{unit}": high,
        f"available_{unit}": value,
    }
    if cap_pct is not None:
        cap = int(capacity * (cap_pct / 100))
        value = min(value, cap)
        terms[f"cap_{unit}"] = cap
    return value, terms
