"""Whether a pod may go to a node, by the load that the node would have with it.

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
    """What a resource of a node is filled with, and how far it may be."""

    resource: int
    """Which of ``RESOURCES``."""
    existing: int
    allocatable: int
    threshold_pct: int


class Check(NamedTuple):
    """A limit with a pod on top."""

    limit: Limit
    pod: int
    estimated: int
    used_pct: int


class Gate(NamedTuple):
    """What one kind of pods is checked against on a node, for as long as the node's load holds."""

    off: bool
    """No threshold is set."""
    unknown: str = ""
    """Why the load is not known: ``no_metric``, ``no_node_usage``; "": it is."""
    limits: tuple[Limit, ...] = ()
    """Resources with a threshold and something allocatable."""
    reason: str = ""
    """Why a pod is turned away that exceeds a limit."""
    key: str = ""
    """Of the thresholds, as the operator writes it, such as ``usageThresholds``."""
    own: bool = False
    """The node has them itself; else they are the cluster's."""


class Filtered(NamedTuple):
    """Whether the pod may go there. A tuple, for it is made a thousand times for each pod."""

    reject_reason: str | None
    bound: str
    """``pass``, the reason to reject, or why nothing was checked."""
    checks: tuple[Check, ...] = ()
    """As they were computed, up to the one that rejects; ``because`` only puts them into words."""

    @property
    def schedulable(self) -> bool:
        """Whether nothing speaks against it."""
        return self.reject_reason is None

    @property
    def because(self) -> tuple[Because, ...]:
        """Each check with its arithmetic; where nothing was checked, why."""
        if not self.checks:
            return (Because(of="schedulable", bound=self.bound, terms={}),)
        bounds = ["pass"] * (len(self.checks) - 1) + [self.bound]
        return tuple(_because(check, bound) for check, bound in zip(self.checks, bounds, strict=True))


def gate_for(
    *, prod: bool, load: ExistingLoad | None, allocatable: Amounts, custom: Thresholds, args: LoadAwareArgs
) -> Gate:
    """What pods of production, or all others, are checked against on a node.

    Args:
        prod: which of the two.
        load: the node's, None if it never reported.
        allocatable: of the node.
        custom: the node's own thresholds.
        args: the cluster's settings.

    """
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
    """Whether the node stays within its limits with the pod; the first resource that does not is the reason.

    Args:
        estimate: what the pod is expected to use.
        gate: what pods of its kind are checked against there.
        args: the cluster's settings.
        daemonset: it goes to every node, whatever the load.
        stale: there is a report, and it is ``expired``.

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
    """The reference's name of the thresholds that a view is compared with."""
    if isinstance(view, Aggregation):
        return "aggregatedUsage.usageThresholds"
    return "prodUsageThresholds" if view == "prod" else "usageThresholds"


def _chosen(custom: Thresholds, configured: Thresholds, *, prod: bool) -> tuple[Percents, View, bool]:
    """Thresholds, the view they are for, and whether they are the node's own: these stand for the cluster's, by kind.

    Production has some of its own if one of them is not 0; else, as for all others, those on a
    statistic go before those on plain use.
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
