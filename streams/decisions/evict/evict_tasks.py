"""Computes what CPU and memory eviction release, and selects victims for it in the order of their priority.

Reading: koordinator a7a1b76b, apis/extension/priority_utils.go, GetPodPriorityValueWithDefault;
pkg/koordlet/qosmanager/plugins: util/evict_utils.go, GetRequestTypeAndValueFromPod, KillAndEvictPods;
memoryevict/memory_evict.go and cpuevict/cpu_evict.go, getSortedBEPodInfos, getBEPodEvictInfoAndSort,
getPodEvictInfoAndSortByPriority, buildEvictTask, and the releases by used and by allocatable threshold percent. Unlike
the reference, only Running and Pending pods are victims, also for best-effort features. Victims and native CPU count in
true units, and used memory counts once, not 1000-fold. A pod that frees nothing that is still missing is not evicted.
A pod that was created beyond its namespace's quota gives back before all others, whatever its annotations allow.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import BANDS, CLASS_RANK, effective_priority_class, raw_qos
from slacktide.streams.decisions.because import Because

Amounts = dict[str, int]
"""Millicores and bytes, by the names of the fields of ``Resources``."""
Measure = Literal["cpu_milli", "mem_bytes"]
"""What a decision is about; also the native resource of that name."""

_DEFAULT_PRIORITY = {name: low + 500 for name, (low, _) in BANDS.items()}
_OWN_PREFIX = {"koord-batch": "batch_", "koord-mid": "mid_"}
_FREE_PREFIX = "free_"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictPod:
    """A candidate for eviction. Candidates compare by identity, not by name."""

    pod: Pod
    used: int | None = None
    """Millicores or bytes of the decision's measure, as last measured; None: no metric."""
    already_evicted: bool = False
    """Evicted in an earlier run, but still present."""
    kept: bool = False
    """A recent eviction failed."""
    spared: bool = False
    """Its requests count, but it is never evicted."""


def priority_with_default(pod: Pod) -> int:
    """Return the pod's priority. Without one, or for 0, return the middle of its class's band."""
    return pod.priority or _DEFAULT_PRIORITY[effective_priority_class(pod)]


def own_resource(pod: Pod, measure: Measure) -> str:
    """Return the resource of the pod's class: native for prod, and for free pods that request no free resources."""
    band = effective_priority_class(pod)
    offered_to_free = _FREE_PREFIX + measure
    if band == "koord-free" and getattr(pod.requests, offered_to_free) is not None:
        return offered_to_free
    return _OWN_PREFIX.get(band, "") + measure


def own_resources(measure: Measure) -> tuple[str, ...]:
    """Return all results of ``own_resource``, in a fixed order."""
    return tuple(prefix + measure for prefix in ("", *_OWN_PREFIX.values(), _FREE_PREFIX))


def amount_of(resources: Resources, name: str) -> int:
    """Return an amount by its name; 0 if it is not declared."""
    amount: int | None = getattr(resources, name)
    return amount or 0


Candidates = tuple[EvictPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Slacktide's own orders, each applied before the reference's. Borrowed pods are first in any order."""

    dying_first: bool = False
    """Pods already evicted sort first, so that their resources count before any new eviction."""
    free_first: bool = False
    """koord-free pods are evicted first."""
    classes_first: bool = False
    """Evict free pods first, then batch, then mid, regardless of priority."""
    sub_priority: bool = False
    """The label koordinator.sh/priority orders best-effort pods of one numeric priority."""

    def before_all(self, candidate: EvictPod) -> tuple[bool, bool, bool, int]:
        """Return the sort key; False sorts before True."""
        dying = self.dying_first and candidate.already_evicted
        rank = CLASS_RANK[effective_priority_class(candidate.pod)]
        if not self.classes_first:
            rank = min(rank, 1) if self.free_first else 0
        return not dying, candidate.kept, not candidate.pod.borrowed, rank

    def best_effort_rank(self, candidate: EvictPod) -> tuple[bool, bool, bool, int, int, int]:
        """Return the sort key with the pod's own priority; a missing one is 0."""
        sub = _sub_priority(candidate) if self.sub_priority else 0
        return *self.before_all(candidate), candidate.pod.priority or 0, sub


def best_effort_by_memory(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """Sort by priority, then by memory descending. Pods of unknown usage are last, by name descending."""
    # Two stable sorts: the first orders only those of unknown use.
    by_name = sorted(_best_effort_pods(pods, feature), key=lambda one: "" if one.used else one.pod.name, reverse=True)
    return tuple(sorted(by_name, key=lambda one: (*order.best_effort_rank(one), -(one.used or 0))))


def best_effort_by_ratio(pods: Iterable[EvictPod], *, feature: str, order: Order) -> Candidates:
    """Sort by priority, then by used share of requested batch CPU, descending. Ties keep the pods' order."""

    def used_ratio(candidate: EvictPod) -> float:
        requested = amount_of(candidate.pod.requests, "batch_cpu_milli")
        return (candidate.used or 0) / requested if requested else 0.0

    candidates = _best_effort_pods(pods, feature)
    return tuple(sorted(candidates, key=lambda one: (*order.best_effort_rank(one), -used_ratio(one))))


def by_priority(
    pods: Iterable[EvictPod], *, feature: str, priority_max: int, amount: Callable[[EvictPod], int], order: Order
) -> Candidates:
    """Select evictable pods of any QoS with a metric and a priority of at most ``priority_max``.

    Sort by ``order``, eviction priority, priority and sub-priority, ascending; then by freed ``amount``, descending.
    """
    eligible = (
        one
        for one in pods
        if _may_go(one, feature)
        and one.pod.eviction_enabled
        and one.used is not None
        and priority_with_default(one.pod) <= priority_max
    )

    def rank(one: EvictPod) -> tuple[tuple[bool, bool, bool, int], int, int, int, int]:
        priority = priority_with_default(one.pod)
        return order.before_all(one), one.pod.eviction_priority, priority, _sub_priority(one), -amount(one)

    return tuple(sorted(eligible, key=rank))


def _best_effort_pods(pods: Iterable[EvictPod], feature: str) -> Iterable[EvictPod]:
    """Select best-effort pods by label, not by Kubernetes QoS class."""
    return (pod for pod in pods if raw_qos(pod.pod.qos_label) == "BE" and _may_go(pod, feature))


def _may_go(pod: EvictPod, feature: str) -> bool:
    features = pod.pod.eviction_features
    allowed = features is None or feature in features or pod.pod.borrowed  # what is borrowed can be taken back
    return allowed and not pod.spared and pod.pod.phase in LIVE_PHASES


def _sub_priority(candidate: EvictPod) -> int:
    """Return the sub-priority label, or the pod's priority without one."""
    label = candidate.pod.sub_priority
    return priority_with_default(candidate.pod) if label is None else label


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
    because = Because(
        of=feature, bound="invalid_config", terms={name: value for name, value in config.items() if value is not None}
    )
    return Release(status="invalid_config", amounts={}, because=(because,))


def nothing(of: str, bound: str, terms: Terms) -> Release:
    """Return a release without a shortage; ``bound`` names the reason."""
    because = Because(of=of, bound=bound, terms=terms)
    return Release(status="nothing_to_release", amounts={}, because=(because,))


Kind = Literal["used", "request"]
"""What a victim's amount measures. Both kinds are released side by side."""
Tally = Counter[tuple[Kind, str]]


@dataclass(frozen=True, slots=True)
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
            # If tasks differ on a resource, the largest amount counts, here and of the targets.
            freed: Tally = Counter()
            for one in counting:
                freed |= _tally(one, one.frees(pod))
            released.update(freed)
            missing = task.missing(released)
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
    outcome = Because(of="evicted_pods", bound=bound, terms=terms | {"evicted_pods": len(victims)})
    because = (*(one for task in tasks for one in task.release.because), outcome)
    return Evictions(tasks=tuple(tasks), victims=tuple(victims), because=because)


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
    sums: Amounts = {}
    for one in pods:
        if priority_with_default(one.pod) <= priority_max:
            resource = own_resource(one.pod, measure)
            sums[resource] = sums.get(resource, 0) + amount_of(one.pod.requests, resource)
    amounts: Amounts = {}
    because = []
    unit = measure.rpartition("_")[2]
    for resource in own_resources(measure):
        if resource not in sums:
            continue
        terms: Terms = {"threshold_pct": threshold_pct, "lower_pct": lower_pct}
        offered = amount_of(allocatable, resource)
        requested, bound = sums[resource], "formula"
        terms |= {f"allocatable_{unit}": offered, f"requested_{unit}": requested}
        if not offered:
            bound, amounts[resource] = "not_sold", requested
        elif requested / offered <= threshold_pct / 100:
            bound = "below_threshold"
        else:  # each measure keeps the reference's order of floating-point arithmetic
            lower = lower_pct / 100
            over = (requested / offered - lower) * offered if measure == "mem_bytes" else requested - lower * offered
            amounts[resource] = int(over)
        if resource in amounts:
            terms[f"release_{unit}"] = amounts[resource]
        because.append(Because(of=f"{feature}/{resource}", bound=bound, terms=terms))
    if not because:
        return nothing(feature, "no_pods", {"priority_max": priority_max})
    return Release(status="release" if amounts else "nothing_to_release", amounts=amounts, because=tuple(because))


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
