"""The operator's strategies: what each key of ``slo-controller-config`` sets, with its defaults and ranges.

Names, defaults and ranges are the reference's: koordinator a7a1b76b, apis/configuration/slo_controller_config.go and
apis/slo/v1alpha1/nodeslo_types.go; for descheduling pkg/descheduler/apis/config/types_loadaware.go (LowNodeLoadArgs,
but for ``dryRun`` and ``intervalSeconds``), for placement pkg/scheduler/apis/config/types.go and v1/defaults.go
(LoadAwareSchedulingArgs). The keys ``eviction-budget-config``, ``descheduling-config``, ``placement-config``,
``admission-config`` and ``agent-config`` are Slacktide's own.
"""

from typing import Annotated, Literal

import msgspec

from slacktide.schemas.bounds import CPUS_MAX, INT32_MAX, Count, Int32, Percent, Seconds, Share
from slacktide.schemas.message import Message

WINDOW_S_MAX = 86_400
NOTICE_S_MAX = 300
CalculatePolicy = Literal["usage", "request", "maxUsageRequest"]
SuppressPolicy = Literal["cpuset", "cfsQuota"]
SuppressSignal = Literal["usage", "pressure", "both"]
BurstPolicy = Literal["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"]
CollectPolicy = Literal["usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache"]
LearnedCaps = Literal["off", "shadow", "on"]
EvictFallback = Literal["freeze", "kill"]
Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]


class AggregatePolicy(Message, frozen=True, kw_only=True):
    """``metricAggregatePolicy``: over which spans percentiles are reported."""

    durations_s: tuple[Seconds, ...] = (300, 600, 1800)
    """Spans over which percentiles of use are computed."""


class Colocation(Message, frozen=True, kw_only=True):
    """``colocation-config``: how batch and mid resources are figured."""

    enable: bool = False
    """Offer batch and mid resources on Nodes."""
    metric_aggregate_duration_s: Annotated[int, msgspec.Meta(ge=1, le=WINDOW_S_MAX)] = 300
    """Span of the averages that batch and mid resources are computed from."""
    metric_report_interval_s: Seconds = 60
    """Least time between two NodeMetrics of a node at the API server."""
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy()
    """Percentiles in NodeMetric."""
    metric_mem_collect_policy: CollectPolicy = "usageWithoutPageCache"
    """Which part of the page cache counts as used memory."""
    cpu_reclaim_threshold_pct: Share = 60
    """Percent of a node's CPU that pods may use together; the rest is a margin."""
    mem_reclaim_threshold_pct: Share = 65
    """Percent of a node's memory that pods may use together; the rest is a margin."""
    cpu_calculate_policy: CalculatePolicy = "usage"
    """Subtract the CPU that production pods use, that they request, or the larger of both."""
    mem_calculate_policy: CalculatePolicy = "usage"
    """Subtract the memory that production pods use, that they request, or the larger of both."""
    batch_cpu_threshold_pct: Share | None = None
    """Most batch CPU that is offered, in percent of the node's CPU."""
    batch_mem_threshold_pct: Share | None = None
    """Most batch memory that is offered, in percent of the node's memory."""
    degrade_time_min: Seconds = 15
    """A node that has been silent for longer offers nothing."""
    update_time_threshold_s: Seconds = 300
    """A Node's status is written again after this time."""
    resource_diff_threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """A Node's status is written at once when a figure changes by more than this part."""
    mid_reclaim_mode: str = ""
    """``static``, or anything else: by what production pods are predicted to leave."""
    mid_cpu_threshold_pct: Percent = 100
    """Most mid CPU that is offered, in percent of the node's CPU."""
    mid_mem_threshold_pct: Percent = 100
    """Most mid memory that is offered, in percent of the node's memory."""
    mid_unallocated_pct: Percent = 0
    """Percent of what no pod has requested that is added to mid resources."""
    mid_static_cpu_reserved_pct: Percent = 0
    """In static mode: percent of the node's CPU that is offered as mid CPU."""
    mid_static_mem_reserved_pct: Percent = 0
    """In static mode: percent of the node's memory that is offered as mid memory."""
    mid_cold_start_s: Seconds = 86_400
    """Slacktide's own: time with samples that the prediction of a production pod needs."""
    mid_safety_margin_pct: Percent = 10
    """Slacktide's own: percent added to predicted peaks."""
    isolation_dry_run: bool = False
    """Slacktide's own: record what best-effort pods' limits by their spec would be, and set none."""
    resource_dry_run: bool = False
    """Slacktide's own: compute and publish batch, mid and free resources, and write none to Nodes."""
    learned_caps: LearnedCaps = "off"
    """Slacktide's own: learn how much best-effort CPU the services of a node bear; ``on`` offers and allows no more,
    ``shadow`` only shows it."""
    interference_budget_pct: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 25
    """Slacktide's own: percent by which best-effort work may slow down a service, for learned caps."""
    explore: bool = False
    """Slacktide's own: with ``learned_caps`` on, hold each node below its cap for 20 minutes in 67 hours, to learn more
    of its services."""
    free_class_enable: bool = False
    """Slacktide's own: koord-free is a class that gets idle resources and is evicted first."""


class ResourceThreshold(Message, frozen=True, kw_only=True):
    """``resource-threshold-config``: when best-effort pods are held back or evicted."""

    enable: bool = False
    """Suppress and evict best-effort pods by the thresholds below."""
    cpu_suppress_threshold_pct: Percent = 65
    """Percent of a node's CPU that all pods may use together before best-effort pods are suppressed."""
    cpu_suppress_min_pct: Percent | None = None
    """Percent of a node's CPU that suppression always leaves to best-effort pods."""
    cpu_suppress_policy: SuppressPolicy = "cpuset"
    """Suppress by a CPU set or by CFS quota."""
    cpu_suppress_signal: SuppressSignal = "usage"
    """Slacktide's own: what holds best-effort CPU back: use above the threshold, stall of latency-sensitive pods, or
    the stricter of both. ``cpu_suppress_policy`` chooses the knob."""
    mem_evict_threshold_pct: Percent | None = 70
    """Use of a node's memory from which pods are evicted."""
    mem_evict_lower_pct: Percent | None = None
    """Use of memory down to which pods are evicted; unset: 2 below the threshold."""
    mem_early_reclaim_threshold_pct: Percent | None = None
    """Slacktide's own: use of a node's memory from which memory of best-effort pods is reclaimed, before any pod is
    evicted; unset: never. It must be below ``mem_evict_threshold_pct``."""
    cpu_evict_be_satisfaction_lower_pct: Percent | None = None
    """Evict when best-effort pods get less than this part of the CPU that they request."""
    cpu_evict_be_satisfaction_upper_pct: Percent | None = None
    """Evict until they get this part."""
    cpu_evict_be_usage_threshold_pct: Percent = 90
    """Evict only if best-effort pods use this part of their limit."""
    cpu_evict_time_window_s: Seconds | None = None
    """Span of the averages that CPU eviction is decided by."""
    cpu_evict_policy: str = "evictByRealLimit"
    """``evictByAllocatable``, or anything else: by the limit in force."""
    cpu_evict_threshold_pct: Percent | None = None
    """Use of a node's CPU from which pods are evicted."""
    cpu_evict_lower_pct: Percent | None = None
    """Use of CPU down to which pods are evicted."""
    evict_enabled_priority_threshold: Int32 | None = None
    """The highest priority that MemoryEvict and CPUEvict may take."""
    allocatable_evict_priority_threshold: Int32 | None = None
    """The highest priority that MemoryAllocatableEvict and CPUAllocatableEvict may take."""
    cpu_allocatable_evict_threshold_pct: Share | None = None
    """Requests from which pods are evicted, in percent of allocatable CPU; above 100 where it has shrunk since."""
    cpu_allocatable_evict_lower_pct: Share | None = None
    """Requests down to which pods are evicted, in percent of allocatable CPU."""
    mem_allocatable_evict_threshold_pct: Share | None = None
    """Requests from which pods are evicted, in percent of allocatable memory."""
    mem_allocatable_evict_lower_pct: Share | None = None
    """Requests down to which pods are evicted, in percent of allocatable memory."""
    mem_evict_fallback: EvictFallback = "freeze"
    """Slacktide's own: what happens to victims if memory is short and the API server is unreachable. They are throttled
    first. Then they are frozen, or killed through their cgroup without the Eviction API."""
    sub_priority_enable: bool = False
    """Slacktide's own: the label koordinator.sh/priority orders best-effort victims of one priority."""
    cpuset_cpus_min: Annotated[int, msgspec.Meta(ge=1, le=CPUS_MAX)] = 2
    """Slacktide's own: the fewest CPUs that policy cpuset leaves; a node with no more of them is held by quota."""
    cpu_suppress_dry_run: bool = False
    """Slacktide's own: decide and record CPU suppression, and do not carry it out."""
    mem_evict_dry_run: bool = False
    """Slacktide's own: decide and record evictions for memory, and do not carry them out."""
    cpu_evict_dry_run: bool = False
    """Slacktide's own: decide and record evictions for CPU, and do not carry them out."""
    evict_notice_s: Annotated[int, msgspec.Meta(ge=0, le=NOTICE_S_MAX)] = 0
    """Slacktide's own: announce an eviction in a record and an Event so long before; 0: evict at once."""


class CpuBurst(Message, frozen=True, kw_only=True):
    """``cpu-burst-config``: how throttled latency-sensitive containers get more than their limit for a while."""

    policy: BurstPolicy = "none"
    """Which means are used: the kernel's burst, a raised quota, both, or none."""
    cpu_burst_pct: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    """The kernel's burst (`cpu.cfs_burst_us`), in percent of a container's CPU limit."""
    cfs_quota_burst_pct: Annotated[int, msgspec.Meta(ge=100, le=INT32_MAX)] | None = 300
    """The most that a throttled container's quota is raised to, in percent of its limit."""
    cfs_quota_burst_period_s: Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)] | None = -1
    """Longest time at the burst ceiling; -1: no limit."""
    share_pool_threshold_pct: Percent = 50
    """Use of the CPUs shared by LS and BE pods from which no quota is raised."""
    dry_run: bool = False
    """Slacktide's own: decide and record bursts, and do not carry them out."""


class EvictionBudget(Message, frozen=True, kw_only=True):
    """The most evictions within any ``interval_s``. 0: none at all."""

    cluster_max: Count = 20
    """Most evictions in the cluster within the interval."""
    node_max: Count = 5
    """Most evictions on one node within the interval."""
    namespace_max: Count = 10
    """Most evictions in one namespace within the interval."""
    interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """Interval of the limits."""
    lease_s: Annotated[int, msgspec.Meta(ge=3, le=600)] = 12
    """How long a node may use its credit without a renewal. The governor renews it at half of that."""


class UsagePercents(Message, frozen=True, kw_only=True):
    """Percents of allocatable, or distances to the mean use of nodes. A resource without a low threshold is ignored."""

    cpu_pct: Percent | None = None
    """Of CPU."""
    mem_pct: Percent | None = None
    """Of memory."""


class UsageWeights(Message, frozen=True, kw_only=True):
    """How much each resource counts in the order of nodes and of pods."""

    cpu: Weight = 1
    """Of CPU."""
    mem: Weight = 1
    """Of memory."""


class Anomaly(Message, frozen=True, kw_only=True):
    """When pods are evicted from a node above its high thresholds."""

    consecutive_abnormalities: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 5
    """Passes in a row in which it may be over; 1: none."""


class Descheduling(Message, frozen=True, kw_only=True):
    """Without thresholds no pass runs; with ``dry_run`` a pass only reports the pods that it would evict."""

    dry_run: bool = True
    """Publish which pods a pass would evict, and evict none."""
    low: UsagePercents = UsagePercents()
    """Up to them a node takes pods."""
    high: UsagePercents = UsagePercents()
    """Above one of them a node gives some away."""
    prod_low: UsagePercents = UsagePercents()
    """The same of production pods alone."""
    prod_high: UsagePercents = UsagePercents()
    use_deviation: bool = False
    """The percents are distances to the nodes' mean use."""
    too_few_targets: Count = 0
    """Pods leave only if more nodes than this have room."""
    node_fit: bool = True
    """Only what would find a place leaves."""
    weights: UsageWeights = UsageWeights()
    """How much each resource counts in the order of nodes and pods."""
    anomaly: Anomaly = Anomaly()
    """How long a node may be over its thresholds."""
    interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """From one pass to the next."""

    @property
    def wanted(self) -> bool:
        """Whether any resource is looked at."""
        return any(one is not None for band in (self.low, self.prod_low) for one in (band.cpu_pct, band.mem_pct))


class Placement(Message, frozen=True, kw_only=True):
    """Thresholds of the scheduler, in percent of the node's allocatable."""

    usage: UsagePercents = UsagePercents(cpu_pct=65, mem_pct=95)
    """A node's use, the pod included, up to which it takes the pod. 0: any."""
    prod_usage: UsagePercents = UsagePercents()
    """Use of production pods alone, for a production pod. If both are unset, ``usage`` is used for these, too."""
    factors: UsagePercents = UsagePercents(cpu_pct=85, mem_pct=70)
    """How much of its request a pod counts until it is measured."""
    dry_run: bool = False
    """Publish which nodes would refuse a pod and which it would prefer, and let each node pass."""


class AdmissionPolicy(Message, frozen=True, kw_only=True):
    """What the webhook demands of new pods beyond the reference, and adds to them."""

    strict_qos: bool = False
    """LSE only with koord-prod; LS not with koord-batch or koord-free; of LSE and LSR, CPU limits equal requests, and
    CPUs can be bound."""
    exclusive_cpus: bool = False
    """LSE and LSR pods get CPUs of their own, or wait: only the scheduler koord-scheduler places them."""


class AgentPolicy(Message, frozen=True, kw_only=True):
    """With ``suspend`` every agent lifts its limits and evicts no pod. Decisions are still recorded."""

    suspend: bool = False
    """Lift all limits and evict no pod, on every node. Decisions are still recorded."""
