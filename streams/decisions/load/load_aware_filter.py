"""Filters nodes by the load that they would have with a pod.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/load_aware.go, Filter and filterNodeUsage;
helper.go, generateUsageThresholdsFilterProfile.
"""

from __future__ import annotations

from typing import NamedTuple

from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import (
    RESOURCES,
    Aggregation,
    Amounts,
    LoadAwareArgs,
    Percents,
    Thresholds,
    View,
)
from slacktide.streams.decisions.load.load_aware_estimator import round_half_away
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad

DEFAULT_THRESHOLDS = Percents(cpu_pct=65, mem_pct=95)
EXPIRED = "node_metric_expired"


class Limit(NamedTuple):
    """A node's load of one resource, and its threshold."""

    resource: int
    """Index in ``RESOURCES``."""
    existing: int
    allocatable: int
    threshold_pct: int


class Check(NamedTuple):
    """A limit checked with a pod."""

    limit: Limit
    pod: int
    estimated: int
    used_pct: int


class Gate(NamedTuple):
    """A node's limits for one kind of pods, valid as long as its load."""

    off: bool
    """No threshold is set."""
    unknown: str = ""
    """Why the load is unknown: ``no_metric``, ``no_node_usage``; "": known."""
    limits: tuple[Limit, ...] = ()
    """Resources with a threshold and an allocatable amount."""
    reason: str = ""
    key: str = ""
    """The name of the thresholds in the settings, such as ``usageThresholds``."""
    own: bool = False
    """The thresholds are the node's own, not the cluster's."""


class Filtered(NamedTuple):
    """The filter's result. A tuple, because a thousand are made for each pod."""

    reject_reason: str | None
    bound: str
    """``pass``, the reject reason, or why nothing was checked."""
    checks: tuple[Check, ...] = ()
    """All checks, up to the one that rejects."""

    @property
    def schedulable(self) -> bool:
        """Return whether the node accepts the pod."""
        return self.reject_reason is None

    @property
    def because(self) -> tuple[Because, ...]:
        """Return each check's arithmetic, or why nothing was checked."""
        if not self.checks:
            return (Because(of="schedulable", bound=self.bound, terms={}),)
        bounds = ["pass"] * (len(self.checks) - 1) + [self.bound]
        return tuple(_because(check, bound) for check, bound in zip(self.checks, bounds, strict=True))


def gate_for(
    *, prod: bool, load: ExistingLoad | None, allocatable: Amounts, custom: Thresholds, args: LoadAwareArgs
) -> Gate:
    """Return a node's limits for production or other pods. ``custom`` holds the node's own thresholds."""
    thresholds, view, own = _chosen(custom, args.thresholds, prod=prod)
    off = not any(thresholds)
    if load is None:
        return Gate(off=off, unknown="no_metric")
    if load.report.node is None:
        return Gate(off=off, unknown="no_node_usage")
    existing = load.seen(view)
    limits = tuple(
        Limit(resource, existing[resource], allocatable[resource], threshold_pct)
        for resource, threshold_pct in enumerate(thresholds)
        if threshold_pct and allocatable[resource]
    )
    reason = "aggregated_usage_exceeds_threshold" if isinstance(view, Aggregation) else "usage_exceeds_threshold"
    return Gate(off=off, limits=limits, reason=reason, key=_key(view), own=own)


def filter_pod(estimate: Amounts, gate: Gate, args: LoadAwareArgs, *, daemonset: bool, stale: bool) -> Filtered:
    """Check a node's limits with a pod. The first exceeded limit is the reject reason.

    A DaemonSet's pod passes regardless of the load. ``stale`` means that the report exists and is ``expired``.
    """
    if daemonset:
        return Filtered(None, "daemonset")
    if gate.off:
        return Filtered(None, "no_thresholds")
    if stale and args.filter_expired:
        return Filtered(None if args.schedule_when_expired else EXPIRED, EXPIRED)
    if gate.unknown:
        return Filtered(None, gate.unknown)
    checks: tuple[Check, ...] = ()
    for limit in gate.limits:
        pod = estimate[limit.resource]
        estimated = limit.existing + pod
        used_pct = round_half_away(float(estimated) / float(limit.allocatable) * 100)
        checks = (*checks, Check(limit, pod, estimated, used_pct))
        if used_pct > limit.threshold_pct:
            reason = f"{gate.reason}:{RESOURCES[limit.resource].name}"
            return Filtered(reason, reason, checks)
    return Filtered(None, "pass", checks)


def _key(view: View) -> str:
    if isinstance(view, Aggregation):
        return "aggregatedUsage.usageThresholds"
    return "prodUsageThresholds" if view == "prod" else "usageThresholds"


def _chosen(custom: Thresholds, configured: Thresholds, *, prod: bool) -> tuple[Percents, View, bool]:
    """Return thresholds, their view, and whether they are the node's own, which override the cluster's by kind.

    Production thresholds apply if one is not 0. Otherwise, those of a statistic precede those of plain usage.
    """
    own = configured.prod if custom.prod is None else custom.prod
    if prod and own is not None and any(own):
        return own, "prod", custom.prod is not None
    for given in (custom, configured):
        if given.aggregated is not None and given.aggregation is not None:
            return given.aggregated, given.aggregation, given is custom
    for given in (custom, configured):
        if given.usage is not None:
            return given.usage, "node", given is custom
    return DEFAULT_THRESHOLDS, "node", False


def _because(check: Check, bound: str) -> Because:
    name, unit = RESOURCES[check.limit.resource]
    return Because(
        of=f"schedulable/{name}",
        bound=bound,
        terms={
            f"existing_{unit}": check.limit.existing,
            f"pod_{unit}": check.pod,
            f"estimated_{unit}": check.estimated,
            f"allocatable_{unit}": check.limit.allocatable,
            "threshold_pct": check.limit.threshold_pct,
            "used_pct": check.used_pct,
        },
    )
