"""Cases of the rules of eviction."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import (
    AMOUNT_MAX,
    Amount,
    Calculated,
    Cores,
    Given,
    GivenPod,
    GivenResources,
    Percent,
    Seconds,
    Whole,
    into,
)
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictPod, EvictTask, Order
from slacktide.streams.decisions.evict.node_evict import CpuEvictNode, EvictNode, cpu_evict, memory_evict


class GivenEvictPod(GivenPod, frozen=True, kw_only=True, rename={"eviction_features": "allowed_eviction_features"}):
    """A pod with its eviction labels and last metrics."""

    eviction_enabled: bool | None = None  # type: ignore[assignment] # once read, never null
    eviction_priority: Whole | None = None  # type: ignore[assignment]
    eviction_features: list[str] | None = None
    already_evicted: bool | None = None
    memory_used_bytes: Amount | None = None
    cpu_used_cores: Cores | None = None

    def __post_init__(self) -> None:
        """Replace null by the value without a label."""
        super().__post_init__()
        msgspec.structs.force_setattr(self, "eviction_enabled", bool(self.eviction_enabled))
        msgspec.structs.force_setattr(self, "eviction_priority", self.eviction_priority or 0)

    def evictable(self, *, used: int | None) -> EvictPod:
        """Convert to the rule's type, with the pod's use of the scarce resource."""
        return EvictPod(pod=self, used=used, already_evicted=bool(self.already_evicted))


class GivenEvictStrategy(Given, frozen=True, kw_only=True):
    """The thresholds that both cases have; an absent threshold is not set."""

    evict_enabled_priority_threshold: Whole | None = None
    allocatable_evict_priority_threshold: Whole | None = None
    free_class_enable: bool | None = None
    sub_priority_enable: bool | None = None

    def order(self) -> Order:
        """Convert to the rule's type."""
        return Order(free_first=bool(self.free_class_enable), sub_priority=bool(self.sub_priority_enable))


class GivenEvictNode(Given, frozen=True, kw_only=True):
    """A node, its pods and the enabled features."""

    enabled_features: list[str] | None = None
    node_allocatable: GivenResources | None = None
    pods: list[GivenEvictPod] | None = None


def shown(evictions: Evictions) -> Calculated:
    """Return the evictions in the format of the vectors."""
    return Calculated(
        output={
            "tasks": [_task(task) for task in evictions.tasks],
            "evicted_in_order": [victim.pod.pod.name for victim in evictions.victims],
        },
        because=evictions.because,
    )


def milli(cores: float | None) -> int | None:
    """Convert cores to millicores, rounded down."""
    return None if cores is None else int(cores * 1000)


def _task(task: EvictTask) -> dict[str, object]:
    known: dict[str, object] = {"feature": task.feature, "status": task.release.status}
    if task.release.status != "release":
        return known
    # Cases name memory in full.
    to_release = {name.replace("mem_", "memory_"): amount for name, amount in task.release.amounts.items()}
    return known | {"to_release": to_release, "candidates_in_order": [one.pod.name for one in task.candidates]}


class MemoryStrategy(GivenEvictStrategy, frozen=True, kw_only=True):
    """An absent threshold is not set."""

    mem_evict_threshold_pct: Percent | None = None
    mem_evict_lower_pct: Percent | None = None
    mem_allocatable_evict_threshold_pct: Percent | None = None
    mem_allocatable_evict_lower_pct: Percent | None = None


class MemoryEvictInput(GivenEvictNode, frozen=True, kw_only=True):
    """A node's memory, its pods and the thresholds."""

    node_capacity_memory_bytes: Whole
    node_memory_used_bytes: Amount | None = None
    strategy: MemoryStrategy | None = None


def calc_memory_evict(given: MemoryEvictInput) -> Calculated:
    """Compute the victims when memory is short, in order."""
    strategy = given.strategy or MemoryStrategy()
    node = EvictNode(
        capacity=given.node_capacity_memory_bytes,
        used=given.node_memory_used_bytes,
        allocatable=given.node_allocatable or Resources(),
        pods=[pod.evictable(used=pod.memory_used_bytes) for pod in given.pods or ()],
    )
    policy = into(ResourceThreshold, strategy, mem_evict_threshold_pct=strategy.mem_evict_threshold_pct)
    return shown(memory_evict(node, features=given.enabled_features or (), policy=policy, order=strategy.order()))


Milli = Annotated[float, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""Averages may be fractions; a limit of -1 means unlimited."""


class BestEffort(Given, frozen=True, kw_only=True):
    """The CPU of all best-effort pods."""

    usage_milli: Milli | None = None
    request_milli: Milli | None = None
    real_limit_milli: Milli | None = None

    def be_cpu(self) -> BeCpu:
        """Convert to the rule's type; values that were not measured are 0."""
        return BeCpu(
            usage_milli=self.usage_milli or 0,
            request_milli=self.request_milli or 0,
            limit_milli=self.real_limit_milli or 0,
        )


class CpuStrategy(GivenEvictStrategy, frozen=True, kw_only=True):
    """An absent threshold is not set."""

    cpu_evict_be_satisfaction_lower_pct: Percent | None = None
    cpu_evict_be_satisfaction_upper_pct: Percent | None = None
    cpu_evict_be_usage_threshold_pct: Percent | None = None
    cpu_evict_time_window_s: Seconds | None = None
    cpu_evict_policy: str | None = None
    cpu_evict_threshold_pct: Percent | None = None
    cpu_evict_lower_pct: Percent | None = None
    cpu_allocatable_evict_threshold_pct: Percent | None = None
    cpu_allocatable_evict_lower_pct: Percent | None = None


class CpuEvictInput(GivenEvictNode, frozen=True, kw_only=True):
    """A node's CPU, the CPU of its best-effort pods, its pods and the thresholds."""

    node_capacity_cpu_milli: Whole
    node_cpu_used_cores_average: Cores | None = None
    metric_collect_interval_seconds: Seconds | None = None
    be_metric_sample_count: Whole | None = None
    be_average: BestEffort | None = None
    be_current: BestEffort | None = None
    strategy: CpuStrategy | None = None


def calc_cpu_evict(given: CpuEvictInput) -> Calculated:
    """Compute the victims when CPU is short, in order."""
    strategy = given.strategy or CpuStrategy()
    interval_s = given.metric_collect_interval_seconds
    node = CpuEvictNode(
        capacity=given.node_capacity_cpu_milli,
        used=milli(given.node_cpu_used_cores_average),
        allocatable=given.node_allocatable or Resources(),
        pods=[pod.evictable(used=milli(pod.cpu_used_cores)) for pod in given.pods or ()],
        be=BeCpuWindow(
            average=(given.be_average or BestEffort()).be_cpu(),
            current=(given.be_current or BestEffort()).be_cpu(),
            samples=given.be_metric_sample_count or 0,
            interval_s=1 if interval_s is None else interval_s,
        ),
    )
    policy = into(ResourceThreshold, strategy)
    return shown(cpu_evict(node, features=given.enabled_features or (), policy=policy, order=strategy.order()))
