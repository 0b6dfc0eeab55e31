"""The features of a policy: their fields, what each lacks in order to act, and which of them act in this version.

An operator must see an enabled feature that lacks something. The reference skips it each second, and reports that only
in a node's log.
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


def _feature(name: str, strategy: str, lacking: Callable[[Any], str], fields: str) -> Feature:
    """Take the fields as words of one text."""
    return Feature(name=name, strategy=strategy, fields=tuple(fields.split()), lacks=lacking)


_NODE = (
    _feature("NodeMetric", "colocation", lacks.nothing, "metric_aggregate_duration_s"),
    _feature("NodeMetricReport", "colocation", lacks.nothing, "metric_report_interval_s"),
    _feature(
        "NodeMetricCollect",
        "colocation",
        lacks.nothing,
        "metric_aggregate_policy.durations_s metric_mem_collect_policy",
    ),
    _feature(
        "BatchResource",
        "colocation",
        lacks.colocated(),
        "cpu_reclaim_threshold_pct mem_reclaim_threshold_pct cpu_calculate_policy mem_calculate_policy "
        "batch_cpu_threshold_pct batch_mem_threshold_pct resource_dry_run",
    ),
    _feature(
        "ResourceSync",
        "colocation",
        lacks.colocated(),
        "degrade_time_min update_time_threshold_s resource_diff_threshold",
    ),
    _feature(
        "MidResource",
        "colocation",
        lacks.colocated(lacks.mid_predicted),
        "mid_unallocated_pct mid_cold_start_s mid_safety_margin_pct mid_reclaim_mode mid_cpu_threshold_pct "
        "mid_mem_threshold_pct resource_dry_run",
    ),
    _feature(
        "MidResource (static)",
        "colocation",
        lacks.colocated(lacks.mid_static),
        "mid_static_cpu_reserved_pct mid_static_mem_reserved_pct mid_reclaim_mode mid_cpu_threshold_pct "
        "mid_mem_threshold_pct resource_dry_run",
    ),
    _feature("FreeResource", "colocation", lacks.colocated(lacks.free), "free_class_enable resource_dry_run"),
    _feature("BEIsolation", "colocation", lacks.colocated(), "isolation_dry_run"),
    _feature(
        "BECPUSuppress",
        "resource_threshold",
        lacks.thresholded(),
        "cpu_suppress_threshold_pct cpu_suppress_min_pct cpu_suppress_policy cpu_suppress_signal cpu_suppress_dry_run",
    ),
    _feature(
        "BECPUSuppress (cpuset)",
        "resource_threshold",
        lacks.thresholded(lacks.by_cpuset),
        "cpuset_cpus_min cpu_suppress_policy",
    ),
    _feature(
        "BEMemoryEvict",
        "resource_threshold",
        lacks.thresholded(lacks.memory_used),
        "mem_evict_threshold_pct mem_evict_lower_pct mem_evict_fallback mem_evict_dry_run evict_notice_s",
    ),
    _feature(
        "MemoryEvict",
        "resource_threshold",
        lacks.thresholded(lacks.memory_evict),
        "mem_evict_threshold_pct mem_evict_lower_pct evict_enabled_priority_threshold mem_evict_fallback "
        "mem_evict_dry_run evict_notice_s",
    ),
    _feature(
        "MemoryAllocatableEvict",
        "resource_threshold",
        lacks.thresholded(lacks.memory_allocatable),
        "mem_allocatable_evict_threshold_pct mem_allocatable_evict_lower_pct allocatable_evict_priority_threshold "
        "mem_evict_fallback mem_evict_dry_run evict_notice_s",
    ),
    _feature(
        "BECPUEvict",
        "resource_threshold",
        lacks.thresholded(lacks.satisfaction),
        "cpu_evict_be_satisfaction_lower_pct cpu_evict_be_satisfaction_upper_pct cpu_evict_be_usage_threshold_pct "
        "cpu_evict_policy cpu_evict_time_window_s cpu_evict_dry_run evict_notice_s",
    ),
    _feature(
        "CPUEvict",
        "resource_threshold",
        lacks.thresholded(lacks.cpu_evict),
        "cpu_evict_threshold_pct cpu_evict_lower_pct evict_enabled_priority_threshold cpu_evict_time_window_s "
        "cpu_evict_dry_run evict_notice_s",
    ),
    _feature(
        "CPUAllocatableEvict",
        "resource_threshold",
        lacks.thresholded(lacks.cpu_allocatable),
        "cpu_allocatable_evict_threshold_pct cpu_allocatable_evict_lower_pct allocatable_evict_priority_threshold "
        "cpu_evict_dry_run evict_notice_s",
    ),
    _feature("SubPriority", "resource_threshold", lacks.thresholded(lacks.sub_priority), "sub_priority_enable"),
    _feature("CPUBurst", "cpu_burst", lacks.burst, "cpu_burst_pct policy dry_run"),
    _feature(
        "CFSQuotaBurst",
        "cpu_burst",
        lacks.quota_burst,
        "cfs_quota_burst_pct cfs_quota_burst_period_s share_pool_threshold_pct policy dry_run",
    ),
    _feature(
        "EvictionBudget", "eviction_budget", lacks.nothing, "cluster_max node_max namespace_max interval_s lease_s"
    ),
    _feature("LowNodeLoad", "descheduling", lacks.descheduling, " ".join(field for field, _ in leaves(Descheduling()))),
    _feature("LoadAwareScheduling", "placement", lacks.nothing, " ".join(field for field, _ in leaves(Placement()))),
    _feature("QosPriorityAdmit", "admission", lacks.nothing, "strict_qos"),
    _feature("Suspend", "agent", lacks.suspension, "suspend"),
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


CARRIED_OUT = frozenset(
    {
        "NodeMetric",
        "NodeMetricReport",
        "BatchResource",
        "MidResource",
        "MidResource (static)",
        "FreeResource",
        "ResourceSync",
        "BEIsolation",
        "BECPUSuppress",
        "BECPUSuppress (cpuset)",
        "BEMemoryEvict",
        "MemoryEvict",
        "MemoryAllocatableEvict",
        "BECPUEvict",
        "CPUEvict",
        "CPUAllocatableEvict",
        "SubPriority",
        "CPUBurst",
        "CFSQuotaBurst",
        "CPUQOS (beClass)",
        "CPUQOS idle (beClass)",
        "MemoryQOS (lsrClass)",
        "MemoryQOS (lsClass)",
        "MemoryQOS (beClass)",
        "MemoryQOS (systemClass)",
        "EvictionBudget",
        "LowNodeLoad",
        "LoadAwareScheduling",
        "QosPriorityAdmit",
        "Suspend",
    }
)
"""By their names in ``features.FEATURES``. Whoever builds one adds it here, and nowhere else."""
