"""``slacktide calc cpu_evict``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import AMOUNT_MAX, Calculated, Cores, Given, Percent, Seconds, Whole
from slacktide.deploy.cli.calc.evict.evict_case import GivenEvictNode, GivenEvictStrategy, milli, shown
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.cpu_evict import CpuEvictNode, cpu_evict

Milli = Annotated[float, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""Averages may be fractions; a limit of -1 means unlimited."""
DEFAULT = ResourceThreshold()


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


class Strategy(GivenEvictStrategy, frozen=True, kw_only=True):
    """An absent threshold is not set."""

    cpu_evict_be_satisfaction_lower_percent: Percent | None = None
    cpu_evict_be_satisfaction_upper_percent: Percent | None = None
    cpu_evict_be_usage_threshold_percent: Percent | None = None
    cpu_evict_time_window_seconds: Seconds | None = None
    cpu_evict_policy: str | None = None
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: Percent | None = None
    cpu_allocatable_evict_lower_percent: Percent | None = None

    def policy(self) -> ResourceThreshold:
        """Convert to the rule's type."""
        busy_pct = self.cpu_evict_be_usage_threshold_percent
        return ResourceThreshold(
            cpu_evict_be_satisfaction_lower_pct=self.cpu_evict_be_satisfaction_lower_percent,
            cpu_evict_be_satisfaction_upper_pct=self.cpu_evict_be_satisfaction_upper_percent,
            cpu_evict_be_usage_threshold_pct=DEFAULT.cpu_evict_be_usage_threshold_pct if busy_pct is None else busy_pct,
            cpu_evict_time_window_s=self.cpu_evict_time_window_seconds,
            cpu_evict_policy=self.cpu_evict_policy or DEFAULT.cpu_evict_policy,
            cpu_evict_threshold_pct=self.cpu_evict_threshold_percent,
            cpu_evict_lower_pct=self.cpu_evict_lower_percent,
            cpu_allocatable_evict_threshold_pct=self.cpu_allocatable_evict_threshold_percent,
            cpu_allocatable_evict_lower_pct=self.cpu_allocatable_evict_lower_percent,
            evict_enabled_priority_threshold=self.evict_enabled_priority_threshold,
            allocatable_evict_priority_threshold=self.allocatable_evict_priority_threshold,
            sub_priority_enable=bool(self.sub_priority_enable),
        )


class Input(GivenEvictNode, frozen=True, kw_only=True):
    """A node's CPU, the CPU of its best-effort pods, its pods and the thresholds."""

    node_capacity_cpu_milli: Whole
    node_cpu_used_cores_average: Cores | None = None
    metric_collect_interval_seconds: Seconds | None = None
    be_metric_sample_count: Whole | None = None
    be_average: BestEffort | None = None
    be_current: BestEffort | None = None
    strategy: Strategy | None = None

    def window(self) -> BeCpuWindow:
        """Convert to the rule's type; the default collection interval is one second."""
        interval_s = self.metric_collect_interval_seconds
        return BeCpuWindow(
            average=(self.be_average or BestEffort()).be_cpu(),
            current=(self.be_current or BestEffort()).be_cpu(),
            samples=self.be_metric_sample_count or 0,
            interval_s=1 if interval_s is None else interval_s,
        )


def calculate(given: Input) -> Calculated:
    """Compute the victims when CPU is short, in order."""
    strategy = given.strategy or Strategy()
    node = CpuEvictNode(
        capacity=given.node_capacity_cpu_milli,
        used=milli(given.node_cpu_used_cores_average),
        allocatable=given.node_allocatable or Resources(),
        pods=[pod.evictable(used=milli(pod.cpu_used_cores)) for pod in given.pods or ()],
        be=given.window(),
    )
    features, policy, order = given.enabled_features or (), strategy.policy(), strategy.order()
    return shown(cpu_evict(node, features=features, policy=policy, order=order))
