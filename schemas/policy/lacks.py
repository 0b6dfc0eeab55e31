"""What a feature lacks in order to act, by the strategy in force; "": it acts.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict, plugins/cpuevict (config checks),
plugins/cpuburst, pkg/koordlet/statesinformer/impl (mergeNoneResourceQOSIfDisabled).
"""

from __future__ import annotations

from collections.abc import Callable

from slacktide.schemas.policy.agent import AgentPolicy
from slacktide.schemas.policy.descheduling import Descheduling
from slacktide.schemas.policy.fields import value_at
from slacktide.schemas.policy.names import name_of
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold
from slacktide.schemas.qos import BANDS

SATISFACTION_LOWER_PCT_MAX = 60
MID_PRIORITY_MAX = BANDS["koord-mid"][1]
DISABLED = "enable is false"


def nothing(_: object) -> str:
    """It always acts."""
    return ""


def colocated(lacks: Callable[[Colocation], str] = lambda _: "") -> Callable[[Colocation], str]:
    """For a feature of colocation: what it lacks besides ``enable``."""
    return lambda colocation: lacks(colocation) if colocation.enable else DISABLED


def thresholded(lacks: Callable[[ResourceThreshold], str] = lambda _: "") -> Callable[[ResourceThreshold], str]:
    """For a feature of thresholds: what it lacks besides ``enable``."""
    return lambda threshold: lacks(threshold) if threshold.enable else DISABLED


def mid_predicted(colocation: Colocation) -> str:
    """Mid resources by what production pods are predicted to leave."""
    return "midReclaimMode is static" if colocation.mid_reclaim_mode == "static" else ""


def mid_static(colocation: Colocation) -> str:
    """Mid resources as a fixed share of the node."""
    return "" if colocation.mid_reclaim_mode == "static" else "midReclaimMode is not static"


def free(colocation: Colocation) -> str:
    """A class that is sold what is idle."""
    return "" if colocation.free_class_enable else "freeClassEnable is false: nothing is sold to pods of koord-free"


def sub_priority(threshold: ResourceThreshold) -> str:
    """The order among victims of one priority."""
    return "" if threshold.sub_priority_enable else "subPriorityEnable is false"


def descheduling(strategy: Descheduling) -> str:
    """Best-effort pods that leave loaded nodes."""
    return "" if strategy.wanted else "neither lowThresholds nor prodLowThresholds is set: there is no pass"


def suspension(strategy: AgentPolicy) -> str:
    """All nodes suspended at once."""
    return "" if strategy.suspend else "suspend is false"


def by_cpuset(threshold: ResourceThreshold) -> str:
    """Best-effort pods held by CPU set."""
    return "" if threshold.cpu_suppress_policy == "cpuset" else "cpuSuppressPolicy is not cpuset"


def memory_used(threshold: ResourceThreshold) -> str:
    """Eviction of best-effort pods by the node's memory."""
    lower, upper = threshold.mem_evict_lower_pct, threshold.mem_evict_threshold_pct
    return _between("memoryEvictLowerPercent", lower, "memoryEvictThresholdPercent", upper)


def memory_evict(threshold: ResourceThreshold) -> str:
    """Eviction of any pod up to a priority, by the node's memory."""
    return memory_used(threshold) or _unset("evictEnabledPriorityThreshold", threshold.evict_enabled_priority_threshold)


def cpu_evict(threshold: ResourceThreshold) -> str:
    """Eviction of any pod up to a priority, by the node's CPU."""
    lower, upper = threshold.cpu_evict_lower_pct, threshold.cpu_evict_threshold_pct
    return _between("cpuEvictLowerPercent", lower, "cpuEvictThresholdPercent", upper) or _unset(
        "evictEnabledPriorityThreshold", threshold.evict_enabled_priority_threshold
    )


def memory_allocatable(threshold: ResourceThreshold) -> str:
    """Eviction where more memory was sold than there is."""
    lower, upper = threshold.mem_allocatable_evict_lower_pct, threshold.mem_allocatable_evict_threshold_pct
    return _allocatable(threshold, "memoryAllocatableEvict", lower, upper)


def cpu_allocatable(threshold: ResourceThreshold) -> str:
    """Eviction where more CPU was sold than there is."""
    lower, upper = threshold.cpu_allocatable_evict_lower_pct, threshold.cpu_allocatable_evict_threshold_pct
    return _allocatable(threshold, "cpuAllocatableEvict", lower, upper)


def _allocatable(threshold: ResourceThreshold, name: str, lower: int | None, upper: int | None) -> str:
    priority = threshold.allocatable_evict_priority_threshold
    return (
        _between(f"{name}LowerPercent", lower, f"{name}ThresholdPercent", upper)
        or _unset(f"{name}LowerPercent", lower)
        or _unset("allocatableEvictPriorityThreshold", priority)
        or (
            f"allocatableEvictPriorityThreshold {priority} is over {MID_PRIORITY_MAX}, the highest of koord-mid"
            if priority is not None and priority > MID_PRIORITY_MAX
            else ""
        )
    )


def satisfaction(threshold: ResourceThreshold) -> str:
    """Eviction of best-effort pods that get too little CPU."""
    lower, upper = threshold.cpu_evict_be_satisfaction_lower_pct, threshold.cpu_evict_be_satisfaction_upper_pct
    if lower is None or upper is None:
        return _unset("cpuEvictBESatisfactionLowerPercent", lower) or _unset(
            "cpuEvictBESatisfactionUpperPercent", upper
        )
    if not 0 < lower <= SATISFACTION_LOWER_PCT_MAX:
        return f"cpuEvictBESatisfactionLowerPercent {lower} is not from 1 to {SATISFACTION_LOWER_PCT_MAX}"
    if not lower <= upper < 100:
        return f"cpuEvictBESatisfactionUpperPercent {upper} is not from {lower} (the lower one) to 99"
    return ""


def _unset(name: str, value: object) -> str:
    return f"{name} is unset" if value is None else ""


def _between(lower_name: str, lower: int | None, name: str, threshold: int | None) -> str:
    """An eviction begins at its threshold and ends at its lower percent."""
    if threshold is None:
        return _unset(name, threshold)
    if lower is not None and lower >= threshold:
        return f"{lower_name} {lower} is not below {name} {threshold}"
    return ""


def burst(burst: CpuBurst) -> str:
    """Saved-up CPU time: ``cpu.max.burst``."""
    return "" if burst.policy in {"auto", "cpuBurstOnly"} else f"policy is {burst.policy}"


def quota_burst(burst: CpuBurst) -> str:
    """A higher quota for throttled containers."""
    if burst.policy not in {"auto", "cfsQuotaBurstOnly"}:
        return f"policy is {burst.policy}"
    percent = burst.cfs_quota_burst_pct
    if percent is None or percent > 100:
        return _unset("cfsQuotaBurstPercent", percent)
    return f"cfsQuotaBurstPercent {percent} leaves nothing over the limit"


def cpu_qos(part: str, *by: str) -> Callable[[ResourceQos], str]:
    """For a QoS class: its part is enabled with one of these settings."""

    def lacks(qos: ResourceQos) -> str:
        return qos_part(part)(qos) or ("" if qos.policies.cpu in by else f"policies.cpuPolicy is {qos.policies.cpu}")

    return lacks


def idle(part: str) -> Callable[[ResourceQos], str]:
    """For a QoS class: ``cpu.idle`` is set."""

    def lacks(qos: ResourceQos) -> str:
        off = "" if value_at(qos, f"{part}.sched_idle") else f"{name_of(ResourceQos, part)}.schedIdle is 0"
        return cpu_qos(part, "coreSched", "podIdle")(qos) or off

    return lacks


def qos_part(part: str) -> Callable[[ResourceQos], str]:
    """For a QoS class: its part is enabled."""

    def lacks(qos: ResourceQos) -> str:
        return "" if value_at(qos, f"{part}.enable") else f"{name_of(ResourceQos, part)}.enable is false"

    return lacks


def kill_priority(part: str) -> Callable[[ResourceQos], str]:
    """Whom the kernel kills first when memory ends."""

    def lacks(qos: ResourceQos) -> str:
        off = "" if value_at(qos, f"{part}.priority_enable") else f"{name_of(ResourceQos, part)}.priorityEnable is 0"
        return qos_part(part)(qos) or off

    return lacks
