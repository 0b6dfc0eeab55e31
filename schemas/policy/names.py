"""What the ConfigMap ``slo-controller-config`` calls the strategies' fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from slacktide.schemas.message import Message
from slacktide.schemas.policy.admission import AdmissionPolicy
from slacktide.schemas.policy.agent import AgentPolicy
from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.schemas.policy.descheduling import Anomaly, Descheduling, UsagePercents, UsageWeights
from slacktide.schemas.policy.node_overlay import FIELDS
from slacktide.schemas.policy.placement import Placement
from slacktide.schemas.policy.resource_qos import (
    BlkioBlock,
    BlkioLimits,
    BlkioQos,
    CpuQos,
    MemoryQos,
    NetworkQos,
    QosClass,
    QosPolicies,
    ResctrlQos,
    ResourceQos,
)
from slacktide.schemas.policy.strategies import AggregatePolicy, Colocation, CpuBurst, ResourceThreshold

NAMES: Mapping[type[Message], Mapping[str, str]] = {
    Colocation: {
        "enable": "enable",
        "metricAggregateDurationSeconds": "metric_aggregate_duration_s",
        "metricReportIntervalSeconds": "metric_report_interval_s",
        "metricAggregatePolicy": "metric_aggregate_policy",
        "metricMemoryCollectPolicy": "metric_mem_collect_policy",
        **FIELDS,
        "midColdStartSeconds": "mid_cold_start_s",
        "midSafetyMarginPercent": "mid_safety_margin_pct",
        "isolationDryRun": "isolation_dry_run",
        "resourceDryRun": "resource_dry_run",
        "freeClassEnable": "free_class_enable",
    },
    AggregatePolicy: {"durations": "durations_s"},
    ResourceThreshold: {
        "enable": "enable",
        "cpuSuppressThresholdPercent": "cpu_suppress_threshold_pct",
        "cpuSuppressMinPercent": "cpu_suppress_min_pct",
        "cpuSuppressPolicy": "cpu_suppress_policy",
        "cpuSuppressSignal": "cpu_suppress_signal",
        "memoryEvictThresholdPercent": "mem_evict_threshold_pct",
        "memoryEvictLowerPercent": "mem_evict_lower_pct",
        "cpuEvictBESatisfactionLowerPercent": "cpu_evict_be_satisfaction_lower_pct",
        "cpuEvictBESatisfactionUpperPercent": "cpu_evict_be_satisfaction_upper_pct",
        "cpuEvictBEUsageThresholdPercent": "cpu_evict_be_usage_threshold_pct",
        "cpuEvictTimeWindowSeconds": "cpu_evict_time_window_s",
        "cpuEvictPolicy": "cpu_evict_policy",
        "cpuEvictThresholdPercent": "cpu_evict_threshold_pct",
        "cpuEvictLowerPercent": "cpu_evict_lower_pct",
        "evictEnabledPriorityThreshold": "evict_enabled_priority_threshold",
        "allocatableEvictPriorityThreshold": "allocatable_evict_priority_threshold",
        "cpuAllocatableEvictThresholdPercent": "cpu_allocatable_evict_threshold_pct",
        "cpuAllocatableEvictLowerPercent": "cpu_allocatable_evict_lower_pct",
        "memoryAllocatableEvictThresholdPercent": "mem_allocatable_evict_threshold_pct",
        "memoryAllocatableEvictLowerPercent": "mem_allocatable_evict_lower_pct",
        "memoryEvictFallback": "mem_evict_fallback",
        "subPriorityEnable": "sub_priority_enable",
        "cpusetMinCPUs": "cpuset_cpus_min",
        "cpuSuppressDryRun": "cpu_suppress_dry_run",
        "memoryEvictDryRun": "mem_evict_dry_run",
        "cpuEvictDryRun": "cpu_evict_dry_run",
        "evictNoticeSeconds": "evict_notice_s",
    },
    CpuBurst: {
        "policy": "policy",
        "cpuBurstPercent": "cpu_burst_pct",
        "cfsQuotaBurstPercent": "cfs_quota_burst_pct",
        "cfsQuotaBurstPeriodSeconds": "cfs_quota_burst_period_s",
        "sharePoolThresholdPercent": "share_pool_threshold_pct",
        "dryRun": "dry_run",
    },
    EvictionBudget: {
        "clusterMax": "cluster_max",
        "nodeMax": "node_max",
        "namespaceMax": "namespace_max",
        "intervalSeconds": "interval_s",
        "leaseSeconds": "lease_s",
    },
    Descheduling: {
        "dryRun": "dry_run",
        "lowThresholds": "low",
        "highThresholds": "high",
        "prodLowThresholds": "prod_low",
        "prodHighThresholds": "prod_high",
        "useDeviationThresholds": "use_deviation",
        "numberOfNodes": "too_few_targets",
        "nodeFit": "node_fit",
        "resourceWeights": "weights",
        "anomalyCondition": "anomaly",
        "intervalSeconds": "interval_s",
    },
    Placement: {
        "usageThresholds": "usage",
        "prodUsageThresholds": "prod_usage",
        "estimatedScalingFactors": "factors",
        "dryRun": "dry_run",
    },
    AgentPolicy: {"suspend": "suspend"},
    AdmissionPolicy: {"strictQos": "strict_qos"},
    UsagePercents: {"cpu": "cpu_pct", "memory": "mem_pct"},
    UsageWeights: {"cpu": "cpu", "memory": "mem"},
    Anomaly: {"consecutiveAbnormalities": "consecutive_abnormalities"},
    ResourceQos: {
        "policies": "policies",
        "lsrClass": "lsr",
        "lsClass": "ls",
        "beClass": "be",
        "systemClass": "system",
        "cgroupRoot": "root",
        "dryRun": "dry_run",
    },
    QosPolicies: {"cpuPolicy": "cpu", "netQOSPolicy": "net"},
    QosClass: {
        "cpuQOS": "cpu",
        "memoryQOS": "mem",
        "blkioQOS": "blkio",
        "resctrlQOS": "resctrl",
        "networkQOS": "network",
    },
    CpuQos: {
        "enable": "enable",
        "groupIdentity": "group_identity",
        "schedIdle": "sched_idle",
        "coreExpeller": "core_expeller",
    },
    MemoryQos: {
        "enable": "enable",
        "minLimitPercent": "min_limit_pct",
        "lowLimitPercent": "low_limit_pct",
        "throttlingPercent": "throttling_pct",
        "wmarkRatio": "wmark_ratio_pct",
        "wmarkScalePermill": "wmark_scale_permill",
        "wmarkMinAdj": "wmark_min_adj_pct",
        "pageCacheLimitEnable": "page_cache_limit_enable",
        "pageCacheLimitSync": "page_cache_limit_sync",
        "pageCacheLimitSize": "page_cache_limit_bytes",
        "priorityEnable": "priority_enable",
        "priority": "priority",
        "oomKillGroup": "oom_kill_group",
    },
    BlkioQos: {"enable": "enable", "blocks": "blocks"},
    BlkioBlock: {"name": "name", "type": "block_type", "ioCfg": "limits"},
    BlkioLimits: {
        "readIOPS": "read_iops",
        "writeIOPS": "write_iops",
        "readBPS": "read_bps",
        "writeBPS": "write_bps",
        "ioWeightPercent": "io_weight_pct",
        "readLatency": "read_latency_us",
        "writeLatency": "write_latency_us",
        "readLatencyPercent": "read_latency_pct",
        "writeLatencyPercent": "write_latency_pct",
        "enableUserModel": "enable_user_model",
        "modelReadBPS": "model_read_bps",
        "modelWriteBPS": "model_write_bps",
        "modelReadSeqIOPS": "model_read_seq_iops",
        "modelWriteSeqIOPS": "model_write_seq_iops",
        "modelReadRandIOPS": "model_read_rand_iops",
        "modelWriteRandIOPS": "model_write_rand_iops",
    },
    ResctrlQos: {
        "enable": "enable",
        "catRangeStartPercent": "cat_range_start_pct",
        "catRangeEndPercent": "cat_range_end_pct",
        "mbaPercent": "mba_pct",
    },
    NetworkQos: {
        "enable": "enable",
        "ingressRequest": "ingress_request",
        "ingressLimit": "ingress_limit",
        "egressRequest": "egress_request",
        "egressLimit": "egress_limit",
    },
}
"""Each kind of struct: what the ConfigMap calls a field, and the field."""
"""Each kind of struct: what the ConfigMap calls a field, and the field."""


@cache
def _parts(kind: type[Message]) -> Mapping[str, tuple[str, Any]]:
    """Each field: its name, and its type."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {field: (name, types[field]) for name, field in NAMES[kind].items()}


def name_of(kind: type[Message], field: str) -> str:
    """A field's path in the ConfigMap: ``beClass.memoryQOS.priority`` for ``be.mem.priority``."""
    head, _, rest = field.partition(".")
    name, part = _parts(kind)[head]
    return f"{name}.{name_of(part, rest)}" if rest else name
