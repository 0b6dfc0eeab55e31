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
    """A feature that always acts."""
    return ""


def colocated(lacks: Callable[[Colocation], str] = lambda _: "") -> Callable[[Colocation], str]:
    """Return the check of a colocation feature, which also needs ``enable``."""
    return lambda colocation: lacks(colocation) if colocation.enable else DISABLED


def thresholded(lacks: Callable[[ResourceThreshold], str] = lambda _: "") -> Callable[[ResourceThreshold], str]:
    """Return the check of a threshold feature, which also needs ``enable``."""
    return lambda threshold: lacks(threshold) if threshold.enable else DISABLED


def mid_predicted(colocation: Colocation) -> str:
    """Mid resources from the predicted use of production pods."""
    return "midReclaimMode is static" if colocation.mid_reclaim_mode == "static" else ""


def mid_static(colocation: Colocation) -> str:
    """Mid resources as a fixed share of the node."""
    return "" if colocation.mid_reclaim_mode == "static" else "midReclaimMode is not static"


def free(colocation: Colocation) -> str:
    """The class koord-free, which gets idle resources."""
    return "" if colocation.free_class_enable else "freeClassEnable is false: pods of koord-free get no resources"


def sub_priority(threshold: ResourceThreshold) -> str:
    """The order of victims of equal priority."""
    return "" if threshold.sub_priority_enable else "subPriorityEnable is false"


def descheduling(strategy: Descheduling) -> str:
    """Descheduling of best-effort pods from overloaded nodes."""
    return "" if strategy.wanted else "neither lowThresholds nor prodLowThresholds is set: no pass runs"


def suspension(strategy: AgentPolicy) -> str:
    """Suspension of all nodes."""
    return "" if strategy.suspend else "suspend is false"


def by_cpuset(threshold: ResourceThreshold) -> str:
    """CPU suppression by CPU set."""
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
    """Eviction if requests exceed a percentage of allocatable memory."""
    lower, upper = threshold.mem_allocatable_evict_lower_pct, threshold.mem_allocatable_evict_threshold_pct
    return _allocatable(threshold, "memoryAllocatableEvict", lower, upper)


def cpu_allocatable(threshold: ResourceThreshold) -> str:
    """Eviction if requests exceed a percentage of allocatable CPU."""
    lower, upper = threshold.cpu_allocatable_evict_lower_pct, threshold.cpu_allocatable_evict_threshold_pct
    return _allocatable(threshold, "cpuAllocatableEvict", lower, upper)


def _allocatable(threshold: ResourceThreshold, name: str, lower: int | None, upper: int | None) -> str:
    priority = threshold.allocatable_evict_priority_threshold
    return (
        _between(f"{name}LowerPercent", lower, f"{name}ThresholdPercent", upper)
        or _unset(f"{name}LowerPercent", lower)
        or _unset("allocatableEvictPriorityThreshold", priority)
        or (
            f"allocatableEvictPriorityThreshold {priority} is above {MID_PRIORITY_MAX}, the maximum of koord-mid"
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
        return f"cpuEvictBESatisfactionLowerPercent {lower} must be from 1 to {SATISFACTION_LOWER_PCT_MAX}"
    if not lower <= upper < 100:
        return f"cpuEvictBESatisfactionUpperPercent {upper} must be from {lower} (the lower percentage) to 99"
    return ""


def _unset(name: str, value: object) -> str:
    return f"{name} is unset" if value is None else ""


def _between(lower_name: str, lower: int | None, name: str, threshold: int | None) -> str:
    """Check that an eviction begins at a threshold above its lower percentage."""
    if threshold is None:
        return _unset(name, threshold)
    if lower is not None and lower >= threshold:
        return f"{lower_name} {lower} is not below {name} {threshold}"
    return ""


def burst(burst: CpuBurst) -> str:
    """Saved CPU time: ``cpu.max.burst``."""
    return "" if burst.policy in {"auto", "cpuBurstOnly"} else f"policy is {burst.policy}"


def quota_burst(burst: CpuBurst) -> str:
    """A higher quota for throttled containers."""
    if burst.policy not in {"auto", "cfsQuotaBurstOnly"}:
        return f"policy is {burst.policy}"
    percent = burst.cfs_quota_burst_pct
    if percent is None or percent > 100:
        return _unset("cfsQuotaBurstPercent", percent)
    return f"cfsQuotaBurstPercent {percent} allows no quota above the limit"


def cpu_qos(part: str, *by: str) -> Callable[[ResourceQos], str]:
    """Return the check that a QoS class is enabled with one of these CPU policies."""

    def lacks(qos: ResourceQos) -> str:
        return qos_part(part)(qos) or ("" if qos.policies.cpu in by else f"policies.cpuPolicy is {qos.policies.cpu}")

    return lacks


def idle(part: str) -> Callable[[ResourceQos], str]:
    """Return the check that a QoS class sets ``cpu.idle``."""

    def lacks(qos: ResourceQos) -> str:
        off = "" if value_at(qos, f"{part}.sched_idle") else f"{name_of(ResourceQos, part)}.schedIdle is 0"
        return cpu_qos(part, "coreSched", "podIdle")(qos) or off

    return lacks


def qos_part(part: str) -> Callable[[ResourceQos], str]:
    """Return the check that a QoS class is enabled."""

    def lacks(qos: ResourceQos) -> str:
        return "" if value_at(qos, f"{part}.enable") else f"{name_of(ResourceQos, part)}.enable is false"

    return lacks


def kill_priority(part: str) -> Callable[[ResourceQos], str]:
    """Return the check that a QoS class sets the OOM kill priority."""

    def lacks(qos: ResourceQos) -> str:
        off = "" if value_at(qos, f"{part}.priority_enable") else f"{name_of(ResourceQos, part)}.priorityEnable is 0"
        return qos_part(part)(qos) or off

    return lacks
