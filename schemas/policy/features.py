"""The features of a policy: their fields, what each lacks in order to act, and which of them act in this version.

An operator must see an enabled feature that lacks something. The reference skips it each second, and reports that only
in a node's log.
Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/memoryevict, plugins/cpuevict (config checks),
plugins/cpuburst, pkg/koordlet/statesinformer/impl (mergeNoneResourceQOSIfDisabled).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.message import Message
from slacktide.schemas.policy.keys import leaves, name_of, value_at
from slacktide.schemas.policy.resource_qos import BlkioQos, MemoryQos, NetworkQos, ResctrlQos, ResourceQos
from slacktide.schemas.policy.strategies import (
    Colocation,
    CpuBurst,
    Descheduling,
    Placement,
    ResourceThreshold,
)
from slacktide.schemas.qos import BANDS

SATISFACTION_LOWER_PCT_MAX = 60
MID_PRIORITY_MAX = BANDS["koord-mid"][1]
DISABLED = "enable is false"


def _acts(_: object) -> str:
    return ""


def memory_used(threshold: ResourceThreshold) -> str:
    """Eviction of best-effort pods by the node's memory."""
    lower, upper = threshold.mem_evict_lower_pct, threshold.mem_evict_threshold_pct
    return _between("memoryEvictLowerPercent", lower, "memoryEvictThresholdPercent", upper)


def early_reclaim(threshold: ResourceThreshold) -> str:
    """Reclaim of best-effort pods' memory between two thresholds of the node's memory."""
    lower, upper = threshold.mem_early_reclaim_threshold_pct, threshold.mem_evict_threshold_pct
    return _unset("memoryEarlyReclaimThresholdPercent", lower) or _between(
        "memoryEarlyReclaimThresholdPercent", lower, "memoryEvictThresholdPercent", upper
    )


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


def explore(colocation: Colocation) -> str:
    """Nodes that are held below their learned cap for a while."""
    if not colocation.explore:
        return "explore is false"
    return "" if colocation.learned_caps == "on" else f"learnedCaps is {colocation.learned_caps}, not on"


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


def qos_part(part: str, *by: str, also: str = "") -> Callable[[ResourceQos], str]:
    """Return the check that a part of a QoS class is enabled.

    ``by``: and one of these is the CPU policy. ``also``: and this field is not 0.
    """

    def lacking(qos: ResourceQos) -> str:
        if not value_at(qos, f"{part}.enable"):
            return f"{name_of(ResourceQos, part)}.enable is false"
        if by and qos.policies.cpu not in by:
            return f"policies.cpuPolicy is {qos.policies.cpu}"
        return "" if not also or value_at(qos, f"{part}.{also}") else f"{name_of(ResourceQos, f'{part}.{also}')} is 0"

    return lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing that a strategy can make happen."""

    name: str
    """The reference's feature gate, if any."""
    strategy: str
    """The field of Policy that configures it."""
    fields: tuple[str, ...]
    """The fields that it uses besides ``enable``."""
    lacks: Callable[[Any], str]
    """Gives why it does not act with a strategy; "": it acts."""


def _feature(name: str, strategy: str, lacking: Callable[[Any], str], fields: str) -> Feature:
    """Take the fields as words of one text."""
    return Feature(name=name, strategy=strategy, fields=tuple(fields.split()), lacks=lacking)


def _colocated(name: str, fields: str, lacks: Callable[[Colocation], str] = _acts) -> Feature:
    """One of ``colocation-config``, which also needs ``enable``."""
    return _feature(name, "colocation", lambda on: lacks(on) if on.enable else DISABLED, fields)


def _thresholded(name: str, fields: str, lacks: Callable[[ResourceThreshold], str] = _acts) -> Feature:
    """One of ``resource-threshold-config``, which also needs ``enable``."""
    return _feature(name, "resource_threshold", lambda on: lacks(on) if on.enable else DISABLED, fields)


def _all(strategy: Message) -> str:
    return " ".join(field for field, _ in leaves(strategy))


_NODE = (
    _feature("NodeMetric", "colocation", _acts, "metric_aggregate_duration_s"),
    _feature("NodeMetricReport", "colocation", _acts, "metric_report_interval_s"),
    _feature("NodeMetricCollect", "colocation", _acts, "metric_aggregate_policy.durations_s metric_mem_collect_policy"),
    _colocated(
        "BatchResource",
        "cpu_reclaim_threshold_pct mem_reclaim_threshold_pct cpu_calculate_policy mem_calculate_policy "
        "batch_cpu_threshold_pct batch_mem_threshold_pct resource_dry_run",
    ),
    _colocated(
        "LearnedCaps",
        "learned_caps interference_budget_pct",
        lambda on: "learnedCaps is off" if on.learned_caps == "off" else "",
    ),
    _colocated("Explore", "explore", explore),
    _colocated("ResourceSync", "degrade_time_min update_time_threshold_s resource_diff_threshold"),
    _colocated(
        "MidResource",
        "mid_unallocated_pct mid_cold_start_s mid_safety_margin_pct mid_reclaim_mode mid_cpu_threshold_pct "
        "mid_mem_threshold_pct resource_dry_run",
        lambda on: "midReclaimMode is static" if on.mid_reclaim_mode == "static" else "",
    ),
    _colocated(
        "MidResource (static)",
        "mid_static_cpu_reserved_pct mid_static_mem_reserved_pct mid_reclaim_mode mid_cpu_threshold_pct "
        "mid_mem_threshold_pct resource_dry_run",
        lambda on: "" if on.mid_reclaim_mode == "static" else "midReclaimMode is not static",
    ),
    _colocated(
        "FreeResource",
        "free_class_enable resource_dry_run",
        lambda on: "" if on.free_class_enable else "freeClassEnable is false: pods of koord-free get no resources",
    ),
    _colocated("BEIsolation", "isolation_dry_run"),
    _thresholded(
        "BECPUSuppress",
        "cpu_suppress_threshold_pct cpu_suppress_min_pct cpu_suppress_policy cpu_suppress_signal cpu_suppress_dry_run",
    ),
    _thresholded(
        "BECPUSuppress (cpuset)",
        "cpuset_cpus_min cpu_suppress_policy",
        lambda on: "" if on.cpu_suppress_policy == "cpuset" else "cpuSuppressPolicy is not cpuset",
    ),
    _thresholded(
        "BEMemoryReclaim",
        "mem_early_reclaim_threshold_pct mem_evict_threshold_pct mem_evict_dry_run",
        early_reclaim,
    ),
    _thresholded(
        "BEMemoryEvict",
        "mem_evict_threshold_pct mem_evict_lower_pct mem_evict_fallback mem_evict_dry_run evict_notice_s",
        memory_used,
    ),
    _thresholded(
        "MemoryEvict",
        "mem_evict_threshold_pct mem_evict_lower_pct evict_enabled_priority_threshold mem_evict_fallback "
        "mem_evict_dry_run evict_notice_s",
        memory_evict,
    ),
    _thresholded(
        "MemoryAllocatableEvict",
        "mem_allocatable_evict_threshold_pct mem_allocatable_evict_lower_pct allocatable_evict_priority_threshold "
        "mem_evict_fallback mem_evict_dry_run evict_notice_s",
        memory_allocatable,
    ),
    _thresholded(
        "BECPUEvict",
        "cpu_evict_be_satisfaction_lower_pct cpu_evict_be_satisfaction_upper_pct cpu_evict_be_usage_threshold_pct "
        "cpu_evict_policy cpu_evict_time_window_s cpu_evict_dry_run evict_notice_s",
        satisfaction,
    ),
    _thresholded(
        "CPUEvict",
        "cpu_evict_threshold_pct cpu_evict_lower_pct evict_enabled_priority_threshold cpu_evict_time_window_s "
        "cpu_evict_dry_run evict_notice_s",
        cpu_evict,
    ),
    _thresholded(
        "CPUAllocatableEvict",
        "cpu_allocatable_evict_threshold_pct cpu_allocatable_evict_lower_pct allocatable_evict_priority_threshold "
        "cpu_evict_dry_run evict_notice_s",
        cpu_allocatable,
    ),
    _thresholded(
        "SubPriority", "sub_priority_enable", lambda on: "" if on.sub_priority_enable else "subPriorityEnable is false"
    ),
    _feature("CPUBurst", "cpu_burst", burst, "cpu_burst_pct policy dry_run"),
    _feature(
        "CFSQuotaBurst",
        "cpu_burst",
        quota_burst,
        "cfs_quota_burst_pct cfs_quota_burst_period_s share_pool_threshold_pct policy dry_run",
    ),
    _feature("EvictionBudget", "eviction_budget", _acts, "cluster_max node_max namespace_max interval_s lease_s"),
    _feature(
        "LowNodeLoad",
        "descheduling",
        lambda on: "" if on.wanted else "neither lowThresholds nor prodLowThresholds is set: no pass runs",
        _all(Descheduling()),
    ),
    _feature("LoadAwareScheduling", "placement", _acts, _all(Placement())),
    _feature("QosPriorityAdmit", "admission", _acts, "strict_qos"),
    _feature(
        "ExclusiveCpus",
        "admission",
        lambda on: "" if on.exclusive_cpus else "exclusiveCpus is false",
        "exclusive_cpus",
    ),
    _feature("Suspend", "agent", lambda on: "" if on.suspend else "suspend is false", "suspend"),
)


MEMORY_QOS = ("min_limit_pct", "low_limit_pct", "throttling_pct")
"""What every kernel with cgroup v2 can do of it."""


def _qos_of(name: str) -> tuple[Feature, ...]:
    """What one QoS class can have, by its field in ResourceQos."""
    shown = name_of(ResourceQos, name)

    def feature(gate: str, own: tuple[str, ...], lacks: Callable[[ResourceQos], str], *more: str) -> Feature:
        return Feature(name=f"{gate} ({shown})", strategy="resource_qos", fields=own + more, lacks=lacks)

    def fields(part: str, kind: type[Message], *but: str) -> tuple[str, ...]:
        return tuple(f"{name}.{part}.{field}" for field in kind.__struct_fields__ if field not in {"enable", *but})

    cpu, mem = f"{name}.cpu", f"{name}.mem"
    return (
        feature("CPUQOS", (f"{cpu}.group_identity",), qos_part(cpu, "groupIdentity"), "policies.cpu", "dry_run"),
        feature(
            "CPUQOS idle",
            (f"{cpu}.sched_idle",),
            qos_part(cpu, "coreSched", "podIdle", also="sched_idle"),
            "policies.cpu",
            "dry_run",
        ),
        feature(
            "CPUQOS core scheduling",
            (f"{cpu}.core_expeller",),
            qos_part(cpu, "coreSched"),
            "policies.cpu",
            "dry_run",
        ),
        feature("MemoryQOS", tuple(f"{mem}.{field}" for field in MEMORY_QOS), qos_part(mem), "dry_run"),
        feature("MemoryQOS watermarks and OOM", fields("mem", MemoryQos, "priority", *MEMORY_QOS), qos_part(mem)),
        feature("MemoryQOS kill priority", (f"{mem}.priority",), qos_part(mem, also="priority_enable")),
        feature("BlkIOQOS", fields("blkio", BlkioQos), qos_part(f"{name}.blkio")),
        feature("ResctrlQOS", fields("resctrl", ResctrlQos), qos_part(f"{name}.resctrl")),
        feature("NetworkQOS", fields("network", NetworkQos), qos_part(f"{name}.network"), "policies.net"),
    )


FEATURES = _NODE + tuple(feature for name in ("lsr", "ls", "be", "system", "root") for feature in _qos_of(name))

CARRIED_OUT = frozenset(feature.name for feature in _NODE) - {"NodeMetricCollect"} | {
    "CPUQOS (beClass)",
    "CPUQOS idle (beClass)",
    "MemoryQOS (lsrClass)",
    "MemoryQOS (lsClass)",
    "MemoryQOS (beClass)",
    "MemoryQOS (systemClass)",
}
"""By their names in ``FEATURES``: all but one of those for nodes, and these for QoS classes."""
