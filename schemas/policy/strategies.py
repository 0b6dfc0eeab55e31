"""The operator's strategies: what each key of ``slo-controller-config`` says, with its defaults and ranges.

Names, defaults and ranges are the reference's: koordinator a7a1b76b,
apis/configuration/slo_controller_config.go, apis/slo/v1alpha1/nodeslo_types.go.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slacktide.schemas.bounds import CPUS_MAX, INT32_MAX, Int32, Percent, Seconds, Share
from slacktide.schemas.message import Message

WINDOW_S_MAX = 86_400
CalculatePolicy = Literal["usage", "request", "maxUsageRequest"]
SuppressPolicy = Literal["cpuset", "cfsQuota"]
BurstPolicy = Literal["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"]
CollectPolicy = Literal["usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"]
EvictFallback = Literal["freeze", "kill"]


class AggregatePolicy(Message, frozen=True, kw_only=True):
    """``metricAggregatePolicy``: over which spans percentiles are reported."""

    durations_s: tuple[Seconds, ...] = (300, 600, 1800)


class Colocation(Message, frozen=True, kw_only=True):
    """``colocation-config``: how batch and mid resources are figured."""

    enable: bool = False
    metric_aggregate_duration_s: Annotated[int, msgspec.Meta(ge=1, le=WINDOW_S_MAX)] = 300
    metric_report_interval_s: Seconds = 60
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy()
    metric_mem_collect_policy: CollectPolicy = "usageWithoutPageCache"
    cpu_reclaim_threshold_pct: Share = 60
    mem_reclaim_threshold_pct: Share = 65
    cpu_calculate_policy: CalculatePolicy = "usage"
    mem_calculate_policy: CalculatePolicy = "usage"
    batch_cpu_threshold_pct: Share | None = None
    batch_mem_threshold_pct: Share | None = None
    degrade_time_min: Seconds = 15
    update_time_threshold_s: Seconds = 300
    resource_diff_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    mid_reclaim_mode: str = ""
    """``static``, or anything else: by what production pods are predicted to leave."""
    mid_cpu_threshold_pct: Percent = 100
    mid_mem_threshold_pct: Percent = 100
    mid_unallocated_pct: Percent = 0
    mid_static_cpu_reserved_pct: Percent = 0
    mid_static_mem_reserved_pct: Percent = 0
    free_class_enable: bool = False
    """Slacktide's own: koord-free is a class that is sold what is idle, and goes first."""


class ResourceThreshold(Message, frozen=True, kw_only=True):
    """``resource-threshold-config``: when best-effort pods are held back or evicted."""

    enable: bool = False
    cpu_suppress_threshold_pct: Percent = 65
    cpu_suppress_min_pct: Percent | None = None
    cpu_suppress_policy: SuppressPolicy = "cpuset"
    mem_evict_threshold_pct: Percent | None = 70
    mem_evict_lower_pct: Percent | None = None
    cpu_evict_be_satisfaction_lower_pct: Percent | None = None
    cpu_evict_be_satisfaction_upper_pct: Percent | None = None
    cpu_evict_be_usage_threshold_pct: Percent = 90
    cpu_evict_time_window_s: Seconds | None = None
    cpu_evict_policy: str = "evictByRealLimit"
    """``evictByAllocatable``, or anything else: by the limit in force."""
    cpu_evict_threshold_pct: Percent | None = None
    cpu_evict_lower_pct: Percent | None = None
    evict_enabled_priority_threshold: Int32 | None = None
    """The highest priority that MemoryEvict and CPUEvict may take."""
    allocatable_evict_priority_threshold: Int32 | None = None
    cpu_allocatable_evict_threshold_pct: Share | None = None
    """Of what is allocatable; more than 100 where it was sold and has since shrunk."""
    cpu_allocatable_evict_lower_pct: Share | None = None
    mem_allocatable_evict_threshold_pct: Share | None = None
    mem_allocatable_evict_lower_pct: Share | None = None
    mem_evict_fallback: EvictFallback = "freeze"
    """Slacktide's own: what follows on little CPU while the API server is away, when memory is short: victims stand
    still, or are ended through their cgroup, without the API's leave."""
    sub_priority_enable: bool = False
    """Slacktide's own: the label koordinator.sh/priority orders best-effort victims of one priority."""
    cpuset_cpus_min: Annotated[int, msgspec.Meta(ge=1, le=CPUS_MAX)] = 2
    """Slacktide's own: the fewest CPUs that policy cpuset leaves; a node with no more of them is held by quota."""


class CpuBurst(Message, frozen=True, kw_only=True):
    """``cpu-burst-config``: how throttled latency-sensitive containers get more than their limit for a while."""

    policy: BurstPolicy = "none"
    cpu_burst_pct: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    cfs_quota_burst_pct: Annotated[int, msgspec.Meta(ge=100, le=INT32_MAX)] | None = 300
    cfs_quota_burst_period_s: Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)] | None = -1
    """Longest time at the burst ceiling; -1: no limit."""
    share_pool_threshold_pct: Percent = 50
