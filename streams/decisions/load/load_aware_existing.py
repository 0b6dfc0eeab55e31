"""Computes a node's load: its measured usage, and the expected additional usage of recent pods.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/pod_assign_cache.go, AddOrUpdateNodeMetric, addPod and
shouldEstimatePodDeadline. The reference adds to and subtracts from its totals. Here, they are recomputed from the
present pods, so they cannot drift.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_estimator import (
    NOTHING,
    RESOURCES,
    Aggregation,
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
    View,
    estimate,
)

REPORT_INTERVAL_S = 60


class PodUse(NamedTuple):
    """A pod's usage, and whether it was measured as production."""

    use: Amounts
    prod: bool


class NodeUse(NamedTuple):
    """The usage of a whole node."""

    use: Amounts
    system: Amounts = NOTHING
    aggregated: Mapping[Aggregation, Amounts] = MappingProxyType({})
    """Statistics by kind and duration. Empty ones are omitted."""

    def statistic(self, wanted: Aggregation) -> Amounts | None:
        """Return a statistic, or None. The longest of a kind without any records is plain usage."""
        if wanted.duration_s:
            return self.aggregated.get(wanted)
        longest = max((one for one in self.aggregated if one.kind == wanted.kind), default=None)
        return self.use if longest is None else self.aggregated[longest]


class NodeReport(NamedTuple):
    """The NodeMetric fields that the scheduler reads. Types made per node and second are tuples."""

    updated_s: float | None
    """None: the report has no time, so every event is later."""
    node: NodeUse | None
    pods: Mapping[tuple[str, str], PodUse]
    """By namespace and name. A pod without usage is omitted."""
    interval_s: int = REPORT_INTERVAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod on its node, with values fixed at its assignment."""

    asked: LoadAwarePod
    prod: bool
    estimate: Amounts
    scheduled_s: float
    deadline_s: float
    """Until then the pod counts at least as its estimate; -inf: no deadline."""


class ExistingLoad(NamedTuple):
    """A node's load in each view, without the candidate pod. Valid until the next report or assignment."""

    report: NodeReport
    everyone: Amounts
    """Node usage, plus the expected additional usage of recent pods."""
    prod: Amounts
    node_delta: Amounts
    node_full: Amounts
    """The sum of all pods' estimates."""
    prod_parts: tuple[Amounts, Amounts, Amounts]
    """The parts of ``prod``: system usage, measured pod usage, expected additional usage."""

    @property
    def because(self) -> tuple[Because, ...]:
        """Return the arithmetic of both sums."""
        everyone, prod = [], []
        system, used, delta = self.prod_parts
        for index, (name, unit) in enumerate(RESOURCES):
            terms: Terms = {f"estimates_{unit}": self.node_full[index]}
            if self.report.node is not None:
                terms = {f"used_{unit}": self.report.node.use[index], f"expected_more_{unit}": self.node_delta[index]}
            terms[f"existing_{unit}"] = self.everyone[index]
            bound = "estimates" if self.report.node is None else "usage"
            everyone.append(Because(of=f"existing_estimated_all/{name}_{unit}", bound=bound, terms=terms))
            terms = {
                f"system_{unit}": system[index],
                f"used_{unit}": used[index],
                f"expected_more_{unit}": delta[index],
                f"existing_{unit}": self.prod[index],
            }
            prod.append(Because(of=f"existing_estimated_prod/{name}_{unit}", bound="usage", terms=terms))
        return (*everyone, *prod)

    def seen(self, view: View) -> Amounts:
        """Return the load in a view. A missing statistic is replaced by the sum of estimates."""
        if view == "node":
            return self.everyone
        if view == "prod":
            return self.prod
        used = None if self.report.node is None else self.report.node.statistic(view)
        return self.node_full if used is None else _plus(used, self.node_delta)


def expired(report: NodeReport, now_s: float, expiration_s: int) -> bool:
    """Return whether a report is too old. A report without a time always is."""
    return report.updated_s is None or 0 < expiration_s <= now_s - report.updated_s


def assigned_pod(asked: LoadAwarePod, *, now_s: float, args: LoadAwareArgs) -> AssignedPod:
    """Estimate a pod that is assigned to a node. Without a time of its own it was scheduled now."""

    def seconds(custom: int | None, configured: int) -> int:
        return custom if args.allow_customize and custom is not None and custom >= 0 else configured

    scheduled_s = now_s if asked.scheduled_s is None else asked.scheduled_s
    after_initialized_s = seconds(asked.custom_after_initialized_s, args.after_initialized_s)
    after_scheduled_s = seconds(asked.custom_after_scheduled_s, args.after_scheduled_s)
    deadline_s = scheduled_s + after_scheduled_s if after_scheduled_s > 0 else -inf
    if after_initialized_s > 0 and asked.initialized_s is not None:
        deadline_s = asked.initialized_s + after_initialized_s
    return AssignedPod(
        asked=asked,
        prod=is_prod(asked),
        estimate=estimate(asked, args).amounts,
        scheduled_s=scheduled_s,
        deadline_s=deadline_s,
    )


def is_prod(asked: LoadAwarePod) -> bool:
    """Return whether the pod counts as production."""
    return effective_priority_class(asked.pod) == "koord-prod"


def existing_load(report: NodeReport, pods: Iterable[AssignedPod], *, prod_include_system: bool) -> ExistingLoad:
    """Add the estimate above usage of each unmeasured or recent pod to the measured usage.

    Terminated pods do not count. ``prod_include_system`` adds the system's usage to production.
    """
    deltas, fulls, of_prod, prod_deltas = list[Amounts](), list[Amounts](), list[Amounts](), list[Amounts]()
    updated_s = -inf if report.updated_s is None else report.updated_s
    for one in pods:
        if one.asked.pod.phase in ENDED_PHASES:
            continue
        measured = report.pods.get((one.asked.pod.namespace, one.asked.pod.name))
        fulls.append(one.estimate)
        delta = NOTHING
        if measured is None or one.scheduled_s > updated_s - report.interval_s or one.deadline_s > updated_s:
            delta = expected = one.estimate
            if measured is not None:
                used = measured.use
                delta = Amounts(
                    max(0, expected.cpu_milli - used.cpu_milli), max(0, expected.mem_bytes - used.mem_bytes)
                )
            deltas.append(delta)
        if one.prod and measured is not None and measured.prod:
            of_prod.append(measured.use)
            prod_deltas.append(delta)
        elif one.prod:  # usage measured under another class is not production usage
            prod_deltas.append(one.estimate)
    system = report.node.system if prod_include_system and report.node else NOTHING
    node_delta, node_full, prod_used, prod_delta = _sum(deltas), _sum(fulls), _sum(of_prod), _sum(prod_deltas)
    return ExistingLoad(
        report=report,
        everyone=node_full if report.node is None else _plus(report.node.use, node_delta),
        prod=_plus(_plus(system, prod_used), prod_delta),
        node_delta=node_delta,
        node_full=node_full,
        prod_parts=(system, prod_used, prod_delta),
    )


def _plus(one: Amounts, other: Amounts) -> Amounts:
    if other is NOTHING:
        return one
    return Amounts(one.cpu_milli + other.cpu_milli, one.mem_bytes + other.mem_bytes)


def _sum(amounts: list[Amounts]) -> Amounts:
    if not amounts:
        return NOTHING
    return Amounts(sum([one.cpu_milli for one in amounts]), sum([one.mem_bytes for one in amounts]))


@dataclass(slots=True, kw_only=True)
class AssignCache:
    """One node's pods and latest report. Mutable; each event brings its own time."""

    args: LoadAwareArgs
    report: NodeReport | None = None
    _pods: dict[Hashable, AssignedPod] = field(default_factory=dict)
    _load: ExistingLoad | None = None

    def govern(self, args: LoadAwareArgs) -> None:
        """Apply new settings: estimate all pods again, as of their assignment."""
        self.args = args
        self._pods = {key: assigned_pod(one.asked, now_s=one.scheduled_s, args=args) for key, one in self._pods.items()}
        self._load = None

    def assign(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """Add a pod. A terminated pod is ignored."""
        if asked.pod.phase not in ENDED_PHASES:
            self._pods[_key(asked)] = assigned_pod(asked, now_s=at_s, args=self.args)
            self._load = None

    def unassign(self, asked: LoadAwarePod) -> None:
        """Remove a pod that was deleted or not bound."""
        if self._pods.pop(_key(asked), None) is not None:
            self._load = None

    def update(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """Remove a terminated pod. Assign a pod again if it is unknown or its spec or conditions changed."""
        known = self._pods.get(_key(asked))
        if known is not None and asked.pod.phase in ENDED_PHASES:
            self.unassign(asked)
        elif known is None or _spec_and_conditions(known.asked) != _spec_and_conditions(asked):
            self.assign(asked, at_s=at_s)

    def measured(self, report: NodeReport | None) -> None:
        """Set the latest report; None: the NodeMetric was deleted, and the pods stay."""
        self.report = report
        self._load = None

    def load(self) -> ExistingLoad | None:
        """Return the node's current load; None without a report."""
        if self._load is None and self.report is not None:
            self._load = existing_load(
                self.report, self._pods.values(), prod_include_system=self.args.prod_include_system
            )
        return self._load


def _key(asked: LoadAwarePod) -> Hashable:
    pod = asked.pod
    return pod.uid or (pod.namespace, pod.name)


def _spec_and_conditions(asked: LoadAwarePod) -> tuple[object, ...]:
    """Return what a new assignment depends on. Labels, annotations and phase do not matter."""
    pod = asked.pod
    return pod.requests, pod.limits, pod.priority, asked.scheduled_s, asked.initialized_s
