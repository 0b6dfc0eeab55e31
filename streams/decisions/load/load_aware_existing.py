"""The load that a node already has: what was measured, and what recent pods are expected to add to it.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/pod_assign_cache.go, AddOrUpdateNodeMetric,
addPod and shouldEstimatePodDeadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import (
    NOTHING,
    RESOURCES,
    Aggregation,
    Amounts,
    LoadAwareArgs,
    View,
)
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwarePod, estimate

REPORT_INTERVAL_S = 60


class PodUse(NamedTuple):
    """What a pod used, and whether whoever measured it took it for production."""

    use: Amounts
    prod: bool


class NodeUse(NamedTuple):
    """What a node used as a whole."""

    use: Amounts
    system: Amounts = NOTHING
    aggregated: Mapping[Aggregation, Amounts] = MappingProxyType({})
    """Statistics by kind and duration; one that holds nothing is left out."""

    def statistic(self, wanted: Aggregation) -> Amounts | None:
        """The one wanted, None if it was not recorded; the longest of a kind never recorded is plain use."""
        if wanted.duration_s:
            return self.aggregated.get(wanted)
        longest = max((one for one in self.aggregated if one.kind == wanted.kind), default=None)
        return self.use if longest is None else self.aggregated[longest]


class NodeReport(NamedTuple):
    """A NodeMetric, as far as the scheduler reads it. A tuple, as all here that is made for each node each second."""

    updated_s: float | None
    """None: it has no time, so everything is later."""
    node: NodeUse | None
    """None: the report has no figures of the node as a whole."""
    pods: Mapping[tuple[str, str], PodUse]
    """By namespace and name; a pod whose use is empty is left out."""
    interval_s: int = REPORT_INTERVAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod on its node, with what is known of it from when it was assigned."""

    asked: LoadAwarePod
    prod: bool
    estimate: Amounts
    scheduled_s: float
    deadline_s: float
    """Until when it is taken for what it was estimated at, if it uses less; -inf: not on that account."""


class ExistingLoad(NamedTuple):
    """A node's load before a pod comes, in each of the views that pods are judged by.

    It holds until the next report or the next assignment, and for all pods in between.
    """

    report: NodeReport
    everyone: Amounts
    """What the node uses, and more if pods are new."""
    prod: Amounts
    """The same of production pods alone."""
    node_delta: Amounts
    node_full: Amounts
    """What all pods were estimated at."""
    prod_parts: tuple[Amounts, Amounts, Amounts]
    """What ``prod`` is made of: the system's use, what was measured of production pods, what they are to use more."""

    @property
    def because(self) -> tuple[Because, ...]:
        """The sums in words, for who asks."""
        return (*_because_everyone(self), *_because_prod(self))

    def seen(self, view: View) -> Amounts:
        """One view: for a statistic it stands for the node's use; without it, what all pods were estimated at."""
        if view == "node":
            return self.everyone
        if view == "prod":
            return self.prod
        used = None if self.report.node is None else self.report.node.statistic(view)
        return self.node_full if used is None else _plus(used, self.node_delta)


def expired(report: NodeReport, now_s: float, expiration_s: int) -> bool:
    """Whether a report is too old to go by; one without a time always is."""
    return report.updated_s is None or 0 < expiration_s <= now_s - report.updated_s


def assigned_pod(asked: LoadAwarePod, *, now_s: float, args: LoadAwareArgs) -> AssignedPod:
    """Estimate a pod that comes to a node; without a time of its own it was scheduled now."""
    scheduled_s = now_s if asked.scheduled_s is None else asked.scheduled_s
    return AssignedPod(
        asked=asked,
        prod=is_prod(asked),
        estimate=estimate(asked, args).amounts,
        scheduled_s=scheduled_s,
        deadline_s=_deadline(asked, scheduled_s, args),
    )


def is_prod(asked: LoadAwarePod) -> bool:
    """Whether the pod counts as production."""
    return effective_priority_class(asked.pod) == "koord-prod"


def existing_load(report: NodeReport, pods: Iterable[AssignedPod], *, prod_include_system: bool) -> ExistingLoad:
    """What was measured, plus per pod what its estimate is above its use where the measurement may miss it.

    Args:
        report: the node's latest.
        pods: assigned to the node, in any order; terminated ones do not count.
        prod_include_system: whether production starts with what the system uses.

    """
    sums = _Sums()
    for pod in pods:
        if pod.asked.pod.phase not in ENDED_PHASES:
            sums.add(pod, report)
    system = report.node.system if prod_include_system and report.node else NOTHING
    node_delta, node_full = _sum(sums.deltas), _sum(sums.fulls)
    prod_used, prod_delta = _sum(sums.prod_used), _sum(sums.prod_deltas)
    return ExistingLoad(
        report=report,
        everyone=node_full if report.node is None else _plus(report.node.use, node_delta),
        prod=_plus(_plus(system, prod_used), prod_delta),
        node_delta=node_delta,
        node_full=node_full,
        prod_parts=(system, prod_used, prod_delta),
    )


@dataclass(slots=True)
class _Sums:
    """Over a node's pods: what is to be added up. Most pods are measured and not young: they have no delta."""

    deltas: list[Amounts] = field(default_factory=list)
    fulls: list[Amounts] = field(default_factory=list)
    prod_used: list[Amounts] = field(default_factory=list)
    prod_deltas: list[Amounts] = field(default_factory=list)

    def add(self, pod: AssignedPod, report: NodeReport) -> None:
        """Count a pod. What is measured of it counts itself, in the node's use, or for production in ``prod_used``."""
        measured = report.pods.get((pod.asked.pod.namespace, pod.asked.pod.name))
        updated_s = -inf if report.updated_s is None else report.updated_s
        self.fulls.append(pod.estimate)
        delta = NOTHING
        if measured is None or pod.scheduled_s > updated_s - report.interval_s or pod.deadline_s > updated_s:
            delta = pod.estimate if measured is None else _above(pod.estimate, measured.use)
            self.deltas.append(delta)
        if not pod.prod:
            return
        if measured is not None and measured.prod:
            self.prod_used.append(measured.use)
            self.prod_deltas.append(delta)
        else:  # what was measured of it under another class is none of production's
            self.prod_deltas.append(pod.estimate)


def _deadline(asked: LoadAwarePod, scheduled_s: float, args: LoadAwareArgs) -> float:
    def seconds(custom: int | None, configured: int) -> int:
        return custom if args.allow_customize and custom is not None and custom >= 0 else configured

    after_initialized_s = seconds(asked.custom_after_initialized_s, args.after_initialized_s)
    if after_initialized_s > 0 and asked.initialized_s is not None:
        return asked.initialized_s + after_initialized_s
    after_scheduled_s = seconds(asked.custom_after_scheduled_s, args.after_scheduled_s)
    return scheduled_s + after_scheduled_s if after_scheduled_s > 0 else -inf


def _plus(one: Amounts, other: Amounts) -> Amounts:
    if other is NOTHING:
        return one
    return Amounts(one.cpu_milli + other.cpu_milli, one.mem_bytes + other.mem_bytes)


def _sum(amounts: list[Amounts]) -> Amounts:
    if not amounts:
        return NOTHING
    return Amounts(sum([one.cpu_milli for one in amounts]), sum([one.mem_bytes for one in amounts]))


def _above(expected: Amounts, used: Amounts) -> Amounts:
    """What is expected beyond what is used, never less than nothing."""
    return Amounts(max(0, expected.cpu_milli - used.cpu_milli), max(0, expected.mem_bytes - used.mem_bytes))


def _because_everyone(load: ExistingLoad) -> Iterable[Because]:
    for index, (name, unit) in enumerate(RESOURCES):
        of = f"existing_estimated_all/{name}_{unit}"
        existing = {f"existing_{unit}": load.everyone[index]}
        if load.report.node is None:
            yield Because(of=of, bound="estimates", terms={f"estimates_{unit}": load.node_full[index], **existing})
        else:
            parts = {f"used_{unit}": load.report.node.use[index], f"expected_more_{unit}": load.node_delta[index]}
            yield Because(of=of, bound="usage", terms={**parts, **existing})


def _because_prod(load: ExistingLoad) -> Iterable[Because]:
    system, used, delta = load.prod_parts
    for index, (name, unit) in enumerate(RESOURCES):
        terms: Terms = {
            f"system_{unit}": system[index],
            f"used_{unit}": used[index],
            f"expected_more_{unit}": delta[index],
            f"existing_{unit}": load.prod[index],
        }
        yield Because(of=f"existing_estimated_prod/{name}_{unit}", bound="usage", terms=terms)
