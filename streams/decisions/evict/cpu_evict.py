"""Selects pods to evict when CPU is short, also if best-effort pods get too little of their requests.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuevict/cpu_evict.go, cpuEvict,
calculateMilliReleaseByBESatisfaction. The arithmetic follows the order of the reference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_candidates import Measure, Order, amount_of, best_effort_by_ratio
from slacktide.streams.decisions.evict.evict_tasks import (
    AllocatableThreshold,
    Evictions,
    EvictNode,
    EvictTask,
    Release,
    UsageThreshold,
    allocatable_task,
    evict,
    invalid,
    no_capacity,
    nothing,
    used_task,
)

RESOURCE = "batch_cpu_milli"
LOWER_PCT_MAX = 60
ONE_CORE_MILLI = 1000
_NOTHING = BeCpu(usage_milli=0, request_milli=0, limit_milli=0)
NOT_MEASURED = BeCpuWindow(average=_NOTHING, current=_NOTHING, samples=0, interval_s=1)
"""Releases nothing, because no limit is known."""


def by_satisfaction(
    feature: str, *, window: BeCpuWindow, allocatable_milli: int | None, policy: ResourceThreshold
) -> Release:
    """Compute request x (upper% - limit / request): the smaller of the window's average and the last sample."""
    lower_pct, upper_pct = policy.cpu_evict_be_satisfaction_lower_pct, policy.cpu_evict_be_satisfaction_upper_pct
    if lower_pct is None or upper_pct is None or not 0 < lower_pct <= min(LOWER_PCT_MAX, upper_pct) or upper_pct >= 100:
        return invalid(feature, lower_pct=lower_pct, upper_pct=upper_pct)
    of = f"{feature}/{RESOURCE}"
    window_s = max(window.interval_s, policy.cpu_evict_time_window_s or window.interval_s)
    terms: Terms = {"window_s": window_s, "sampled_s": window.samples * window.interval_s}
    if terms["sampled_s"] < window_s // 3:
        return nothing(of, "too_few_samples", terms)
    terms |= {"lower_pct": lower_pct, "upper_pct": upper_pct, "busy_pct": policy.cpu_evict_be_usage_threshold_pct}
    amounts: list[int] = []
    for name, measured in (("average", window.average), ("current", window.current)):
        be = _limited(measured, allocatable_milli) if policy.cpu_evict_policy == "evictByAllocatable" else measured
        bound, amount, found = _release(be, lower_pct / 100, upper_pct / 100, terms["busy_pct"] / 100)
        terms |= {f"{name}_{term}": value for term, value in found.items()}
        if amount <= 0:
            return nothing(of, f"{name}_{bound}", terms)
        amounts.append(amount)
    release_milli = min(amounts)
    because = Because(
        of=of,
        bound="formula" if release_milli == amounts[0] else "capped",
        terms=terms | {"release_milli": release_milli},
    )
    return Release(status="release", amounts={RESOURCE: release_milli}, because=(because,))


def _limited(be: BeCpu, allocatable_milli: int | None) -> BeCpu:
    """Use allocatable as the limit; None: no limit. A 0 becomes 1, so that satisfaction can be computed."""
    return msgspec.structs.replace(be, limit_milli=-1 if allocatable_milli is None else max(allocatable_milli, 1))


def _release(be: BeCpu, lower: float, upper: float, busy: float) -> tuple[str, int, Terms]:
    """Return bound, amount and terms of one measurement."""
    terms: Terms = {"usage_milli": be.usage_milli, "request_milli": be.request_milli, "limit_milli": be.limit_milli}
    if be.limit_milli <= 0:
        return "unlimited", 0, terms
    # Below one core, pods are throttled even at low usage.
    if be.limit_milli >= ONE_CORE_MILLI and be.usage_milli / be.limit_milli < busy:
        return "not_busy", 0, terms
    if be.request_milli <= 0:
        return "no_request", 0, terms
    satisfaction = be.limit_milli / be.request_milli
    terms["satisfied_ratio"] = satisfaction
    if satisfaction > lower:
        return "satisfied", 0, terms
    amount = int(be.request_milli * (upper - satisfaction))
    return "satisfied", amount, terms | {"release_milli": amount}


MEASURE: Measure = "cpu_milli"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuEvictNode(EvictNode):
    """A node in millicores, with the recent CPU window of best-effort pods."""

    be: BeCpuWindow


def cpu_evict(node: CpuEvictNode, *, features: Collection[str], policy: ResourceThreshold, order: Order) -> Evictions:
    """Run the enabled features in the order BECPUEvict, CPUAllocatableEvict, CPUEvict. Unit: millicores."""
    if node.capacity <= 0:
        return no_capacity()
    return evict([task(name, node, policy, order) for name, task in _IN_TURN.items() if name in features])


def _best_effort(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    sold = node.allocatable.batch_cpu_milli
    release = by_satisfaction(feature, window=node.be, allocatable_milli=sold, policy=policy)
    return EvictTask(
        feature=feature,
        kind="request",
        release=release,
        candidates=best_effort_by_ratio(node.pods, feature=feature, order=order) if release.amounts else (),
        frees=lambda pod: {RESOURCE: amount_of(pod.pod.requests, RESOURCE)},
    )


def _requested(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    at = AllocatableThreshold(
        threshold_pct=policy.cpu_allocatable_evict_threshold_pct,
        lower_pct=policy.cpu_allocatable_evict_lower_pct,
        priority_max=policy.allocatable_evict_priority_threshold,
    )
    return allocatable_task(feature=feature, measure=MEASURE, node=node, at=at, order=order)


def _used(feature: str, node: CpuEvictNode, policy: ResourceThreshold, order: Order) -> EvictTask:
    at = UsageThreshold(threshold_pct=policy.cpu_evict_threshold_pct, lower_pct=policy.cpu_evict_lower_pct)
    return used_task(
        feature=feature,
        measure=MEASURE,
        node=node,
        at=at,
        priority_max=policy.evict_enabled_priority_threshold,
        order=order,
    )


_IN_TURN = {"BECPUEvict": _best_effort, "CPUAllocatableEvict": _requested, "CPUEvict": _used}
FEATURES = tuple(_IN_TURN)
