"""Cases of the rules of eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import NO_AMOUNTS, Calculated, GivenResources, pod_form
from slacktide.deploy.cli.calc.forms import AMOUNT_MAX, Amount, By, Cores, Form, Given, Nullable, Seconds, Whole
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.cpu_evict import CpuEvictNode, cpu_evict
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Order
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictNode
from slacktide.streams.decisions.evict.memory_evict import memory_evict


class MeasuredPod(Pod, frozen=True, kw_only=True):
    """A pod with its last metrics."""

    already_evicted: bool = False
    memory_used_bytes: Amount | None = None
    cpu_used_cores: Cores | None = None

    def evictable(self, *, used: int | None) -> EvictPod:
        """Convert to the rule's type, with the pod's use of the scarce resource."""
        return EvictPod(pod=self, used=used, already_evicted=self.already_evicted)


GivenPods = Sequence[
    Annotated[
        MeasuredPod,
        pod_form(
            names={"eviction_features": "allowed_eviction_features"},
            eviction_enabled=Nullable[bool],
            eviction_priority=Nullable[Whole],
        ),
    ]
]


class Strategy(ResourceThreshold, frozen=True, kw_only=True):
    """The thresholds of a node, and the order of its victims; an absent threshold is not set."""

    free_class_enable: bool = False
    sub_priority_enable: bool = False

    @property
    def order(self) -> Order:
        """The order of victims."""
        return Order(free_first=self.free_class_enable, sub_priority=self.sub_priority_enable)


_STRATEGY = (
    "evict_enabled_priority_threshold allocatable_evict_priority_threshold free_class_enable sub_priority_enable"
)
NO_STRATEGY = Strategy(mem_evict_threshold_pct=None)


def shown(evictions: Evictions) -> Calculated:
    """Return the evictions in the format of the vectors."""
    tasks: list[dict[str, object]] = []
    for task in evictions.tasks:
        tasks.append({"feature": task.feature, "status": task.release.status})
        if task.release.status == "release":
            amounts = task.release.amounts.items()
            tasks[-1] |= {
                # Cases name memory in full.
                "to_release": {name.replace("mem_", "memory_"): amount for name, amount in amounts},
                "candidates_in_order": [one.pod.name for one in task.candidates],
            }
    victims = [victim.pod.pod.name for victim in evictions.victims]
    return Calculated(output={"tasks": tasks, "evicted_in_order": victims}, because=evictions.because)


def milli(cores: float | None) -> int | None:
    """Convert cores to millicores, rounded down."""
    return None if cores is None else int(cores * 1000)


MemoryStrategy = Annotated[
    Strategy,
    Form(
        f"{_STRATEGY} mem_evict_threshold_pct mem_evict_lower_pct mem_allocatable_evict_threshold_pct"
        " mem_allocatable_evict_lower_pct",
        mem_evict_threshold_pct=None,
    ),
]


def calc_memory_evict(
    *,
    node_capacity_memory_bytes: Whole,
    node_memory_used_bytes: Amount | None = None,
    node_allocatable: Nullable[GivenResources] = NO_AMOUNTS,
    pods: Nullable[GivenPods] = (),
    enabled_features: Nullable[Sequence[str]] = (),
    strategy: Nullable[MemoryStrategy] = NO_STRATEGY,
) -> Calculated:
    """Compute the victims when memory is short, in order."""
    node = EvictNode(
        capacity=node_capacity_memory_bytes,
        used=node_memory_used_bytes,
        allocatable=node_allocatable,
        pods=[pod.evictable(used=pod.memory_used_bytes) for pod in pods],
    )
    return shown(memory_evict(node, features=enabled_features, policy=strategy, order=strategy.order))


Milli = Annotated[float, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""Averages may be fractions; a limit of -1 means unlimited."""


_MEASURED = (Nullable[Annotated[float, By(lambda measured, _: measured or 0, Milli)]], 0)
BestEffort = Annotated[BeCpu, Form(usage_milli=_MEASURED, request_milli=_MEASURED, limit_milli=_MEASURED)]
"""The CPU of all best-effort pods; values that were not measured are 0."""
UNUSED = BeCpu(usage_milli=0, request_milli=0, limit_milli=0)
CpuStrategy = Annotated[
    Strategy,
    Form(
        f"{_STRATEGY} cpu_evict_be_satisfaction_lower_pct cpu_evict_be_satisfaction_upper_pct"
        " cpu_evict_be_usage_threshold_pct cpu_evict_time_window_s cpu_evict_policy cpu_evict_threshold_pct"
        " cpu_evict_lower_pct cpu_allocatable_evict_threshold_pct cpu_allocatable_evict_lower_pct"
    ),
]


class _CpuEvictInput(Given, frozen=True, kw_only=True):
    node_capacity_cpu_milli: Whole
    node_cpu_used_cores_average: Cores | None = None
    node_allocatable: Nullable[GivenResources] = NO_AMOUNTS
    pods: Nullable[GivenPods] = []
    metric_collect_interval_seconds: Nullable[Seconds] = 1
    be_metric_sample_count: Nullable[Whole] = 0
    be_average: Nullable[BestEffort] = UNUSED
    be_current: Nullable[BestEffort] = UNUSED
    enabled_features: Nullable[list[str]] = []
    strategy: Nullable[CpuStrategy] = NO_STRATEGY


def calc_cpu_evict(given: _CpuEvictInput) -> Calculated:
    """Compute the victims when CPU is short, in order."""
    node = CpuEvictNode(
        capacity=given.node_capacity_cpu_milli,
        used=milli(given.node_cpu_used_cores_average),
        allocatable=given.node_allocatable,
        pods=[pod.evictable(used=milli(pod.cpu_used_cores)) for pod in given.pods],
        be=BeCpuWindow(
            average=given.be_average,
            current=given.be_current,
            samples=given.be_metric_sample_count,
            interval_s=given.metric_collect_interval_seconds,
        ),
    )
    return shown(cpu_evict(node, features=given.enabled_features, policy=given.strategy, order=given.strategy.order))
