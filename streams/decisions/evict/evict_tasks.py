"""Computes what CPU and memory eviction release, by node usage and by requests, and selects victims for it.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins: memoryevict/memory_evict.go and cpuevict/cpu_evict.go,
the releases by used and by allocatable threshold percent, buildEvictTask; util/evict_utils.go, KillAndEvictPods. Unlike
the reference, victims and native CPU count in true units, and used memory counts once, not 1000-fold. A pod that frees
nothing of what is still missing is not evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import BANDS
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_candidates import (
    Amounts,
    Candidates,
    EvictPod,
    Measure,
    Order,
    amount_of,
    by_priority,
    own_resource,
    own_resources,
    priority_with_default,
)

Status = Literal["invalid_config", "nothing_to_release", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The result of one eviction feature."""

    status: Status
    amounts: Amounts
    """Empty unless the status is ``release``; a listed 0 requests nothing."""
    because: tuple[Because, ...]


def invalid(feature: str, **config: int | None) -> Release:
    """Return a release for incomplete or contradictory thresholds."""
    because = Because(of=feature, bound="invalid_config", terms=given(**config))
    return Release(status="invalid_config", amounts={}, because=(because,))


def nothing(of: str, bound: str, terms: Terms) -> Release:
    """Return a release without a shortage; ``bound`` names the reason."""
    because = Because(of=of, bound=bound, terms=terms)
    return Release(status="nothing_to_release", amounts={}, because=(because,))


def given(**terms: float | None) -> Terms:
    """Return the terms that have a value."""
    return {name: value for name, value in terms.items() if value is not None}


Kind = Literal["used", "request"]
"""What a victim's amount measures. Both kinds are released side by side."""
Tally = Counter[tuple[Kind, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictTask:
    """The release of one feature, its candidates, and what each of them frees."""

    feature: str
    kind: Kind
    release: Release
    candidates: Candidates
    """In order of eviction, including pods evicted in an earlier run."""
    frees: Callable[[EvictPod], Amounts]

    def missing(self, released: Tally) -> set[str]:
        """Return the resources that are not fully released."""
        amounts = self.release.amounts.items()
        return {resource for resource, amount in amounts if amount > released[self.kind, resource]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod to evict, and the feature that selected it."""

    pod: EvictPod
    feature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """The victims in order of eviction, and the tasks and reasons behind them."""

    tasks: tuple[EvictTask, ...]
    victims: tuple[Victim, ...]
    because: tuple[Because, ...]


def evict(tasks: Sequence[EvictTask]) -> Evictions:
    """Select each task's candidates until its amounts are released, by whichever task.

    A victim counts toward every task, once per kind and resource. Pods that were evicted earlier count, too.
    """
    counting = [task for task in tasks if task.release.amounts and task.missing(Counter())]
    released: Tally = Counter()
    handled: set[EvictPod] = set()
    victims = []
    for task in tasks:
        missing = task.missing(released)
        for pod in task.candidates:
            # If nothing is missing, the sets are disjoint, too.
            if pod in handled or missing.isdisjoint(task.frees(pod)):
                continue
            handled.add(pod)
            if not pod.already_evicted:
                victims.append(Victim(pod=pod, feature=task.feature))
            released.update(_freed(pod, counting))
            missing = task.missing(released)
    because = (*(one for task in tasks for one in task.release.because), _outcome(counting, released, len(victims)))
    return Evictions(tasks=tuple(tasks), victims=tuple(victims), because=because)


def _freed(pod: EvictPod, counting: Sequence[EvictTask]) -> Tally:
    """Return what a victim frees. If tasks differ on a resource, the largest amount counts."""
    freed: Tally = Counter()
    for task in counting:
        freed |= _tally(task, task.frees(pod))
    return freed


def _outcome(counting: Sequence[EvictTask], released: Tally, victims: int) -> Because:
    """Compare released amounts with targets. If tasks differ on a resource, the largest target counts."""
    targets: Tally = Counter()
    for task in counting:
        targets |= _tally(task, task.release.amounts)
    terms: Terms = {}
    for (kind, resource), target in targets.items():
        of, _, unit = resource.rpartition("_")
        terms[f"{kind}_{of}_target_{unit}"] = target
        terms[f"{kind}_{of}_released_{unit}"] = released[kind, resource]
    short = any(released[key] < target for key, target in targets.items())
    bound = ("too_few_candidates" if short else "released") if targets else "no_shortage"
    return Because(of="evicted_pods", bound=bound, terms=terms | {"evicted_pods": victims})


def _tally(task: EvictTask, amounts: Amounts) -> Tally:
    return Counter({(task.kind, resource): amount for resource, amount in amounts.items()})


PRIORITY_MAX = BANDS["koord-mid"][1]
"""Pods above the mid band are never evicted because of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableThreshold:
    """Above ``threshold_pct`` of allocatable, requests above ``lower_pct`` are released. None: not configured."""

    threshold_pct: int | None
    lower_pct: int | None
    priority_max: int | None
    """Pods above it do not count and are not evicted."""


def by_allocatable(
    feature: str, measure: Measure, *, allocatable: Resources, pods: Iterable[EvictPod], at: AllocatableThreshold
) -> Release:
    """Compute the requests minus ``lower_pct`` of allocatable, for each class's resource; all without allocatable."""
    threshold_pct, lower_pct, priority_max = at.threshold_pct, at.lower_pct, at.priority_max
    if (
        threshold_pct is None
        or lower_pct is None
        or priority_max is None
        or threshold_pct < 0
        or lower_pct >= threshold_pct
        or priority_max > PRIORITY_MAX
    ):
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct, priority_max=priority_max)
    requested = _requested(pods, measure, priority_max)
    amounts: Amounts = {}
    because = []
    for resource, sum_requested in requested.items():
        terms: Terms = {"threshold_pct": threshold_pct, "lower_pct": lower_pct}
        sold = amount_of(allocatable, resource)
        bound, amount = _over(measure, sum_requested, sold, threshold_pct / 100, lower_pct / 100)
        unit = measure.rpartition("_")[2]
        terms |= {f"allocatable_{unit}": sold, f"requested_{unit}": sum_requested}
        if amount is not None:
            amounts[resource] = amount
            terms[f"release_{unit}"] = amount
        because.append(Because(of=f"{feature}/{resource}", bound=bound, terms=terms))
    if not because:
        return nothing(feature, "no_pods", {"priority_max": priority_max})
    return Release(status="release" if amounts else "nothing_to_release", amounts=amounts, because=tuple(because))


def _requested(pods: Iterable[EvictPod], measure: Measure, priority_max: int) -> Amounts:
    """Sum the requests by resource in a fixed order. Omit resources that no pod counts for."""
    sums: Amounts = {}
    for evictable in pods:
        pod = evictable.pod
        if priority_with_default(pod) <= priority_max:
            resource = own_resource(pod, measure)
            sums[resource] = sums.get(resource, 0) + amount_of(pod.requests, resource)
    return {resource: sums[resource] for resource in own_resources(measure) if resource in sums}


def _over(measure: Measure, requested: int, sold: int, threshold: float, lower: float) -> tuple[str, int | None]:
    """Return bound and amount. Each measure keeps the reference's order of floating-point arithmetic."""
    if not sold:
        return "not_sold", requested
    share = requested / sold
    if share <= threshold:
        return "below_threshold", None
    return "formula", int((share - lower) * sold if measure == "mem_bytes" else requested - lower * sold)


LOWER_BELOW_THRESHOLD_PCT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageThreshold:
    """From ``threshold_pct`` of capacity on, usage above ``lower_pct`` (default: 2 less) is released. None: not set."""

    threshold_pct: int | None
    lower_pct: int | None


def by_usage(feature: str, measure: Measure, *, capacity: int, used: int | None, at: UsageThreshold) -> Release:
    """Compute capacity x (used% - lower%), with whole percentages. The capacity is above 0. Without usage: nothing."""
    threshold_pct, lower_pct = at.threshold_pct, at.lower_pct
    if threshold_pct is None or threshold_pct < 0:
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct)
    if lower_pct is None:
        lower_pct = threshold_pct - LOWER_BELOW_THRESHOLD_PCT
    if lower_pct >= threshold_pct:
        return invalid(feature, threshold_pct=threshold_pct, lower_pct=lower_pct)
    of, unit = f"{feature}/{measure}", measure.rpartition("_")[2]
    terms: Terms = {f"capacity_{unit}": capacity, "threshold_pct": threshold_pct, "lower_pct": lower_pct}
    if used is None:
        return nothing(of, "no_metric", terms)
    used_pct = used * 100 // capacity
    terms |= {f"used_{unit}": used, "used_pct": used_pct}
    if used_pct < threshold_pct:
        return nothing(of, "below_threshold", terms)
    amount = capacity * (used_pct - lower_pct) // 100
    because = Because(of=of, bound="formula", terms=terms | {f"release_{unit}": amount})
    return Release(status="release", amounts={measure: amount}, because=(because,))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictNode:
    """A node in the unit of the measure: millicores for CPU, bytes for memory."""

    capacity: int
    used: int | None
    """None: no metric."""
    allocatable: Resources
    pods: Sequence[EvictPod]
    """All pods of the node, in any phase."""


def used_task(
    *,
    feature: str,
    measure: Measure,
    node: EvictNode,
    at: UsageThreshold,
    priority_max: int | None,
    order: Order,
    helps: Callable[[EvictPod], object] = lambda _: True,
) -> EvictTask:
    """Build a task that releases usage by pods that pass ``helps``. Without ``priority_max`` it is invalid."""
    candidates: Candidates = ()
    if priority_max is None:
        release = invalid(feature, threshold_pct=at.threshold_pct, lower_pct=at.lower_pct)
    else:
        release = by_usage(feature, measure, capacity=node.capacity, used=node.used, at=at)
        if release.amounts:
            helping = filter(helps, node.pods)
            candidates = by_priority(helping, feature=feature, priority_max=priority_max, amount=used, order=order)
    return EvictTask(
        feature=feature, kind="used", release=release, candidates=candidates, frees=lambda pod: {measure: used(pod)}
    )


def allocatable_task(
    *, feature: str, measure: Measure, node: EvictNode, at: AllocatableThreshold, order: Order
) -> EvictTask:
    """Build a task that releases requests above allocatable, for each class's own resource."""
    release = by_allocatable(feature, measure, allocatable=node.allocatable, pods=node.pods, at=at)

    def frees(pod: EvictPod) -> Amounts:
        resource = own_resource(pod.pod, measure)
        return {resource: amount_of(pod.pod.requests, resource)} if release.amounts.get(resource) else {}

    def freed(pod: EvictPod) -> int:
        return sum(frees(pod).values())

    candidates: Candidates = ()
    if at.priority_max is not None:
        helping = filter(freed, node.pods)
        candidates = by_priority(helping, feature=feature, priority_max=at.priority_max, amount=freed, order=order)
    return EvictTask(feature=feature, kind="request", release=release, candidates=candidates, frees=frees)


def used(pod: EvictPod) -> int:
    """Return the pod's usage; 0 if unknown."""
    return pod.used or 0


def no_capacity() -> Evictions:
    """Return no victims, because a node without capacity is not known well enough."""
    because = Because(of="evicted_pods", bound="no_capacity", terms={"evicted_pods": 0})
    return Evictions(tasks=(), victims=(), because=(because,))
