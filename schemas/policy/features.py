"""What the strategies' fields are for: features, and what each lacks in order to act.

An operator must know of a feature that was asked for and lacks something: the reference skips it each second
and writes that to a node's log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from slacktide.schemas.message import Message
from slacktide.schemas.policy import lacks
from slacktide.schemas.policy.descheduling import Descheduling
from slacktide.schemas.policy.fields import leaves
from slacktide.schemas.policy.names import name_of
from slacktide.schemas.policy.placement import Placement
from slacktide.schemas.policy.resource_qos import BlkioQos, MemoryQos, NetworkQos, ResctrlQos, ResourceQos


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


_NODE: tuple[Feature, ...] = (
    Feature(name="NodeMetric", strategy="colocation", fields=("metric_aggregate_duration_s",), lacks=lacks.nothing),
    Feature(
        name="NodeMetricReport",
        strategy="colocation",
        fields=("metric_report_interval_s",),
        lacks=lacks.nothing,
    ),
    Feature(
        name="NodeMetricCollect",
        strategy="colocation",
        fields=("metric_aggregate_policy.durations_s", "metric_mem_collect_policy"),
        lacks=lacks.nothing,
    ),
    Feature(
        name="BatchResource",
        strategy="colocation",
        fields=(
            "cpu_reclaim_threshold_pct",
            "mem_reclaim_threshold_pct",
            "cpu_calculate_policy",
            "mem_calculate_policy",
            "batch_cpu_threshold_pct",
            "batch_mem_threshold_pct",
            "resource_dry_run",
        ),
        lacks=lacks.colocated(),
    ),
    Feature(
        name="ResourceSync",
        strategy="colocation",
        fields=("degrade_time_min", "update_time_threshold_s", "resource_diff_threshold"),
        lacks=lacks.colocated(),
    ),
    Feature(
        name="MidResource",
        strategy="colocation",
        fields=(
            "mid_unallocated_pct",
            "mid_cold_start_s",
            "mid_safety_margin_pct",
            "mid_reclaim_mode",
            "mid_cpu_threshold_pct",
            "mid_mem_threshold_pct",
            "resource_dry_run",
        ),
        lacks=lacks.colocated(lacks.mid_predicted),
    ),
    Feature(
        name="MidResource (static)",
        strategy="colocation",
        fields=(
            "mid_static_cpu_reserved_pct",
            "mid_static_mem_reserved_pct",
            "mid_reclaim_mode",
            "mid_cpu_threshold_pct",
            "mid_mem_threshold_pct",
            "resource_dry_run",
        ),
        lacks=lacks.colocated(lacks.mid_static),
    ),
    Feature(
        name="FreeResource",
        strategy="colocation",
        fields=("free_class_enable", "resource_dry_run"),
        lacks=lacks.colocated(lacks.free),
    ),
    Feature(name="BEIsolation", strategy="colocation", fields=("isolation_dry_run",), lacks=lacks.colocated()),
    Feature(
        name="BECPUSuppress",
        strategy="resource_threshold",
        fields=(
            "cpu_suppress_threshold_pct",
            "cpu_suppress_min_pct",
            "cpu_suppress_policy",
            "cpu_suppress_signal",
            "cpu_suppress_dry_run",
        ),
        lacks=lacks.thresholded(),
    ),
    Feature(
        name="BECPUSuppress (cpuset)",
        strategy="resource_threshold",
        fields=("cpuset_cpus_min", "cpu_suppress_policy"),
        lacks=lacks.thresholded(lacks.by_cpuset),
    ),
    Feature(
        name="BEMemoryEvict",
        strategy="resource_threshold",
        fields=(
            "mem_evict_threshold_pct",
            "mem_evict_lower_pct",
            "mem_evict_fallback",
            "mem_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.memory_used),
    ),
    Feature(
        name="MemoryEvict",
        strategy="resource_threshold",
        fields=(
            "mem_evict_threshold_pct",
            "mem_evict_lower_pct",
            "evict_enabled_priority_threshold",
            "mem_evict_fallback",
            "mem_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.memory_evict),
    ),
    Feature(
        name="MemoryAllocatableEvict",
        strategy="resource_threshold",
        fields=(
            "mem_allocatable_evict_threshold_pct",
            "mem_allocatable_evict_lower_pct",
            "allocatable_evict_priority_threshold",
            "mem_evict_fallback",
            "mem_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.memory_allocatable),
    ),
    Feature(
        name="BECPUEvict",
        strategy="resource_threshold",
        fields=(
            "cpu_evict_be_satisfaction_lower_pct",
            "cpu_evict_be_satisfaction_upper_pct",
            "cpu_evict_be_usage_threshold_pct",
            "cpu_evict_policy",
            "cpu_evict_time_window_s",
            "cpu_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.satisfaction),
    ),
    Feature(
        name="CPUEvict",
        strategy="resource_threshold",
        fields=(
            "cpu_evict_threshold_pct",
            "cpu_evict_lower_pct",
            "evict_enabled_priority_threshold",
            "cpu_evict_time_window_s",
            "cpu_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.cpu_evict),
    ),
    Feature(
        name="CPUAllocatableEvict",
        strategy="resource_threshold",
        fields=(
            "cpu_allocatable_evict_threshold_pct",
            "cpu_allocatable_evict_lower_pct",
            "allocatable_evict_priority_threshold",
            "cpu_evict_dry_run",
            "evict_notice_s",
        ),
        lacks=lacks.thresholded(lacks.cpu_allocatable),
    ),
    Feature(
        name="SubPriority",
        strategy="resource_threshold",
        fields=("sub_priority_enable",),
        lacks=lacks.thresholded(lacks.sub_priority),
    ),
    Feature(name="CPUBurst", strategy="cpu_burst", fields=("cpu_burst_pct", "policy", "dry_run"), lacks=lacks.burst),
    Feature(
        name="CFSQuotaBurst",
        strategy="cpu_burst",
        fields=("cfs_quota_burst_pct", "cfs_quota_burst_period_s", "share_pool_threshold_pct", "policy", "dry_run"),
        lacks=lacks.quota_burst,
    ),
    Feature(
        name="EvictionBudget",
        strategy="eviction_budget",
        fields=("cluster_max", "node_max", "namespace_max", "interval_s", "lease_s"),
        lacks=lacks.nothing,
    ),
    Feature(
        name="LowNodeLoad",
        strategy="descheduling",
        fields=tuple(field for field, _ in leaves(Descheduling())),
        lacks=lacks.descheduling,
    ),
    Feature(
        name="LoadAwareScheduling",
        strategy="placement",
        fields=tuple(field for field, _ in leaves(Placement())),
        lacks=lacks.nothing,
    ),
    Feature(name="Suspend", strategy="agent", fields=("suspend",), lacks=lacks.suspension),
)


MEMORY_QOS = ("min_limit_pct", "low_limit_pct", "throttling_pct")
"""What every kernel with cgroup v2 can do of it."""


def _qos_of(name: str) -> tuple[Feature, ...]:
    """What one QoS class can have, by its field in ResourceQos."""
    shown = name_of(ResourceQos, name)

    def feature(gate: str, own: tuple[str, ...], lacks: Callable[[ResourceQos], str], *more: str) -> Feature:
        return Feature(name=f"{gate} ({shown})", strategy="resource_qos", fields=own + more, lacks=lacks)

    def fields(part: str, kind: type[Message], *but: str) -> tuple[str, ...]:
        names = (field.name for field in msgspec.structs.fields(kind))
        return tuple(f"{name}.{part}.{field}" for field in names if field not in {"enable", *but})

    cpu, mem = f"{name}.cpu", f"{name}.mem"
    return (
        feature("CPUQOS", (f"{cpu}.group_identity",), lacks.cpu_qos(cpu, "groupIdentity"), "policies.cpu", "dry_run"),
        feature("CPUQOS idle", (f"{cpu}.sched_idle",), lacks.idle(cpu), "policies.cpu", "dry_run"),
        feature(
            "CPUQOS core scheduling",
            (f"{cpu}.core_expeller",),
            lacks.cpu_qos(cpu, "coreSched"),
            "policies.cpu",
            "dry_run",
        ),
        feature("MemoryQOS", tuple(f"{mem}.{field}" for field in MEMORY_QOS), lacks.qos_part(mem), "dry_run"),
        feature("MemoryQOS watermarks and OOM", fields("mem", MemoryQos, "priority", *MEMORY_QOS), lacks.qos_part(mem)),
        feature("MemoryQOS kill priority", (f"{mem}.priority",), lacks.kill_priority(mem)),
        feature("BlkIOQOS", fields("blkio", BlkioQos), lacks.qos_part(f"{name}.blkio")),
        feature("ResctrlQOS", fields("resctrl", ResctrlQos), lacks.qos_part(f"{name}.resctrl")),
        feature("NetworkQOS", fields("network", NetworkQos), lacks.qos_part(f"{name}.network"), "policies.net"),
    )


FEATURES = _NODE + tuple(feature for name in ("lsr", "ls", "be", "system", "root") for feature in _qos_of(name))
