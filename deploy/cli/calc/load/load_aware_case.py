"""Defines types shared by the load-aware cases: a pod and its settings, a report, the settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from slacktide.deploy.cli.calc.case import Amount, Given, GivenPod, Percent, Seconds
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import (
    Aggregation,
    Amounts,
    Factors,
    LoadAwareArgs,
    Percents,
    Thresholds,
    Weights,
)
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import (
    REPORT_INTERVAL_S,
    ExistingLoad,
    NodeReport,
    NodeUse,
    PodUse,
)

PerResource = dict[str, Percent | None]
"""Percent per resource; an empty map counts as absent."""
Share = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class GivenUse(Given, frozen=True, kw_only=True):
    """The use of each resource."""

    cpu_milli: Amount | None = None
    memory_bytes: Amount | None = None

    @property
    def amounts(self) -> Amounts:
        """Convert to the rule's type."""
        return Amounts(self.cpu_milli or 0, self.memory_bytes or 0)


_NOTHING = GivenUse()


class GivenFactors(Given, frozen=True, kw_only=True):
    """Percent per resource."""

    cpu: Share | None = None
    memory: Share | None = None

    @property
    def factors(self) -> Factors:
        """Convert to the rule's type."""
        return Factors(self.cpu, self.memory)


class GivenLoadAwarePod(GivenPod, frozen=True, kw_only=True):
    """A pod object with values derived from its annotations, conditions and owner."""

    custom_scaling_factors: GivenFactors | None = None
    custom_estimated_seconds_after_pod_scheduled: Seconds | None = None
    custom_estimated_seconds_after_initialized: Seconds | None = None
    scheduled_time_seconds: Seconds | None = None
    initialized_time_seconds: Seconds | None = None
    owned_by_daemonset: bool | None = None

    @property
    def asked(self) -> LoadAwarePod:
        """Convert to the rule's type."""
        return LoadAwarePod(
            pod=self,
            custom_factors=(self.custom_scaling_factors or GivenFactors()).factors,
            custom_after_scheduled_s=self.custom_estimated_seconds_after_pod_scheduled,
            custom_after_initialized_s=self.custom_estimated_seconds_after_initialized,
            scheduled_s=self.scheduled_time_seconds,
            initialized_s=self.initialized_time_seconds,
            daemonset=bool(self.owned_by_daemonset),
        )


class GivenStatistic(Given, frozen=True, kw_only=True):
    """An aggregated usage of the node."""

    type: str
    duration_seconds: Seconds | None = None
    usage: GivenUse | None = None


class GivenPodUse(Given, frozen=True, kw_only=True):
    """A pod's usage as the agent reported it."""

    namespace: str = "default"
    name: str = ""
    priority_class: str | None = None
    usage: GivenUse | None = None


class GivenReport(Given, frozen=True, kw_only=True):
    """A NodeMetric."""

    update_time_seconds: Seconds | None = None
    report_interval_seconds: Seconds | None = None
    node_level_missing: bool | None = None
    node_usage: GivenUse | None = None
    system_usage: GivenUse | None = None
    aggregated_node_usage: list[GivenStatistic] | None = None
    pod_metrics: list[GivenPodUse] | None = None

    @property
    def report(self) -> NodeReport:
        """Convert to the rule's type. The last entry of a key wins; an empty usage counts as absent."""
        interval_s = self.report_interval_seconds
        return NodeReport(
            updated_s=self.update_time_seconds,
            interval_s=REPORT_INTERVAL_S if interval_s is None else interval_s,
            node=None if self.node_level_missing else self._node(),
            pods={
                (pod.namespace, pod.name): PodUse(pod.usage.amounts, pod.priority_class == "koord-prod")
                for pod in self.pod_metrics or ()
                if pod.usage is not None and pod.usage != _NOTHING
            },
        )

    def _node(self) -> NodeUse:
        return NodeUse(
            use=(self.node_usage or _NOTHING).amounts,
            system=(self.system_usage or _NOTHING).amounts,
            aggregated={
                Aggregation(one.type, one.duration_seconds or 0): one.usage.amounts
                for one in self.aggregated_node_usage or ()
                if one.usage is not None and one.usage != _NOTHING
            },
        )


class GivenAggregated(Given, frozen=True, kw_only=True):
    """Thresholds and scores by an aggregated usage of the node."""

    usage_thresholds: PerResource | None = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration_seconds: Seconds | None = None
    score_aggregation_type: str | None = None
    score_aggregated_duration_seconds: Seconds | None = None


class GivenThresholds(Given, frozen=True, kw_only=True):
    """Thresholds by kind: the cluster's, or the node's own."""

    usage_thresholds: PerResource | None = None
    prod_usage_thresholds: PerResource | None = None
    aggregated: GivenAggregated | None = None

    @property
    def thresholds(self) -> Thresholds:
        """Convert to the rule's type."""
        aggregated = self.aggregated or GivenAggregated()
        return Thresholds(
            usage=_percents(self.usage_thresholds),
            prod=_percents(self.prod_usage_thresholds),
            aggregated=_percents(aggregated.usage_thresholds),
            aggregation=_aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration_seconds),
        )


class GivenArgs(GivenThresholds, frozen=True, kw_only=True):
    """The cluster's settings; absent ones have their defaults."""

    filter_expired_node_metrics: bool | None = None
    node_metric_expiration_seconds: Seconds | None = None
    enable_schedule_when_node_metrics_expired: bool | None = None
    resource_weights: dict[str, Amount | None] | None = None
    dominant_resource_weight: Amount | None = None
    prod_usage_include_system: bool | None = None
    score_according_prod_usage: bool | None = None
    estimated_scaling_factors: GivenFactors | None = None
    estimated_seconds_after_pod_scheduled: Seconds | None = None
    estimated_seconds_after_initialized: Seconds | None = None
    allow_customize_estimation: bool | None = None
    free_class_enable: bool | None = None

    @property
    def args(self) -> LoadAwareArgs:
        """Convert to the rule's type."""
        weights, aggregated = self.resource_weights, self.aggregated or GivenAggregated()
        given: dict[str, Any] = {
            "filter_expired": self.filter_expired_node_metrics,
            "expiration_s": self.node_metric_expiration_seconds,
            "schedule_when_expired": self.enable_schedule_when_node_metrics_expired,
            "weights": Weights(weights.get("cpu") or 0, weights.get("memory") or 0) if weights else None,
            "dominant_weight": self.dominant_resource_weight,
            "score_prod": self.score_according_prod_usage,
            "score_aggregation": _aggregation(
                aggregated.score_aggregation_type, aggregated.score_aggregated_duration_seconds
            ),
            "prod_include_system": self.prod_usage_include_system,
            "factors": self.estimated_scaling_factors and self.estimated_scaling_factors.factors,
            "allow_customize": self.allow_customize_estimation,
            "after_scheduled_s": self.estimated_seconds_after_pod_scheduled,
            "after_initialized_s": self.estimated_seconds_after_initialized,
            "free_class_enable": self.free_class_enable,
        }
        return LoadAwareArgs(
            thresholds=self.thresholds, **{name: value for name, value in given.items() if value is not None}
        )


def amounts_out(amounts: Amounts) -> dict[str, int]:
    """Return the amounts in the result's format."""
    return {"cpu_milli": amounts.cpu_milli, "memory_bytes": amounts.mem_bytes}


def existing_out(load: ExistingLoad | None) -> dict[str, object]:
    """Return both views of a node's load; null without a report."""
    return {
        "existing_estimated_all": load and amounts_out(load.everyone),
        "existing_estimated_prod": load and amounts_out(load.prod),
    }


def below(path: str, because: Iterable[Because]) -> list[Because]:
    """Prefix the figures' names with a path."""
    return [replace(one, of=f"{path}/{one.of}") for one in because]


def _percents(per_resource: PerResource | None) -> Percents | None:
    return Percents(per_resource.get("cpu") or 0, per_resource.get("memory") or 0) if per_resource else None


def _aggregation(kind: str | None, duration_s: int | None) -> Aggregation | None:
    return Aggregation(kind, duration_s or 0) if kind else None
