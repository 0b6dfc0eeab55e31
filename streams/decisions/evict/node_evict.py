"""Selects the pods to evict from a node, by memory and by CPU; which outcomes the audit keeps.

Only pods that are best-effort by the pod list and in the best-effort cgroup are evicted, whatever a policy or label
sets. Each kind has a cool-down after an eviction, because usage does not show the eviction yet. Reading: koordinator
a7a1b76b, pkg/koordlet/qosmanager/plugins: memoryevict/memory_evict.go, memoryEvict; cpuevict/cpu_evict.go, cpuEvict,
calculateMilliReleaseByBESatisfaction. The arithmetic follows the order of the reference.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.policy.features import FEATURES
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import BeCpu, BeCpuWindow, NodeSample, PodUse
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.evict.evict_tasks import (
    AllocatableThreshold,
    Amounts,
    Candidates,
    Evictions,
    EvictPod,
    EvictTask,
    Measure,
    Order,
    Release,
    UsageThreshold,
    amount_of,
    best_effort_by_memory,
    best_effort_by_ratio,
    by_allocatable,
    by_priority,
    by_usage,
    evict,
    invalid,
    nothing,
    own_resource,
)
from slacktide.streams.decisions.suppress.learned_cap import starved_by_exploring

MEMORY_RULES = frozenset({"BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"})
BY_SATISFACTION = "BECPUEvict"
CPU_RULES = frozenset({BY_SATISFACTION, "CPUAllocatableEvict", "CPUEvict"})
MEMORY_COOL_MS, CPU_COOL_MS = 4_000, 20_000
_BY_MEMORY_USED = frozenset({"BEMemoryEvict", "MemoryEvict"})
_NOWHERE = PodUse(uid="")
_LACKS = {feature.name: feature.lacks for feature in FEATURES if feature.name in MEMORY_RULES | CPU_RULES}
_BATCH_CPU = "batch_cpu_milli"
LOWER_PCT_MAX = 60
ONE_CORE_MILLI = 1000
_NO_CPU = BeCpu(usage_milli=0, request_milli=0, limit_milli=0)
NOT_MEASURED = BeCpuWindow(average=_NO_CPU, current=_NO_CPU, samples=0, interval_s=1)
"""Releases nothing, because no limit is known."""


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
    feature: str,
    measure: Measure,
    *,
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
    return EvictTask(feature, "used", release, candidates, frees=lambda pod: {measure: used(pod)})


def allocatable_task(
    feature: str, measure: Measure, *, node: EvictNode, at: AllocatableThreshold, order: Order
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
    return EvictTask(feature, "request", release, candidates, frees)


def used(pod: EvictPod) -> int:
    """Return the pod's usage; 0 if unknown."""
    return pod.used or 0


def no_capacity() -> Evictions:
    """Return no victims, because a node without capacity is not known well enough."""
    because = Because(of="evicted_pods", bound="no_capacity", terms={"evicted_pods": 0})
    return Evictions(tasks=(), victims=(), because=(because,))


def memory_evict(node: EvictNode, *, features: Collection[str], policy: ResourceThreshold, order: Order) -> Evictions:
    """Run the enabled features in the order BEMemoryEvict, MemoryAllocatableEvict, MemoryEvict. Unit: bytes."""
    if node.capacity <= 0:
        return no_capacity()
    measure: Measure = "mem_bytes"
    threshold = UsageThreshold(threshold_pct=policy.mem_evict_threshold_pct, lower_pct=policy.mem_evict_lower_pct)
    tasks = []
    if (feature := "BEMemoryEvict") in features:
        release = by_usage(feature, measure, capacity=node.capacity, used=node.used, at=threshold)
        pods = best_effort_by_memory(node.pods, feature=feature, order=order) if release.amounts else ()
        tasks.append(EvictTask(feature, "used", release, pods, frees=lambda pod: {measure: used(pod)}))
    if (feature := "MemoryAllocatableEvict") in features:
        at = AllocatableThreshold(
            threshold_pct=policy.mem_allocatable_evict_threshold_pct,
            lower_pct=policy.mem_allocatable_evict_lower_pct,
            priority_max=policy.allocatable_evict_priority_threshold,
        )
        tasks.append(allocatable_task(feature, measure, node=node, at=at, order=order))
    if (feature := "MemoryEvict") in features:
        priority_max = policy.evict_enabled_priority_threshold
        # A pod without usage frees nothing. Only BEMemoryEvict evicts it, as in the reference.
        tasks.append(
            used_task(feature, measure, node=node, at=threshold, priority_max=priority_max, order=order, helps=used)
        )
    return evict(tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuEvictNode(EvictNode):
    """A node in millicores, with the recent CPU window of best-effort pods."""

    be: BeCpuWindow


def cpu_evict(node: CpuEvictNode, *, features: Collection[str], policy: ResourceThreshold, order: Order) -> Evictions:
    """Run the enabled features in the order BECPUEvict, CPUAllocatableEvict, CPUEvict. Unit: millicores."""
    if node.capacity <= 0:
        return no_capacity()
    measure: Measure = "cpu_milli"
    tasks = []
    if (feature := BY_SATISFACTION) in features:
        offered = node.allocatable.batch_cpu_milli
        release = by_satisfaction(feature, window=node.be, allocatable_milli=offered, policy=policy)
        pods = best_effort_by_ratio(node.pods, feature=feature, order=order) if release.amounts else ()
        tasks.append(
            EvictTask(
                feature, "request", release, pods, lambda pod: {_BATCH_CPU: amount_of(pod.pod.requests, _BATCH_CPU)}
            )
        )
    if (feature := "CPUAllocatableEvict") in features:
        at = AllocatableThreshold(
            threshold_pct=policy.cpu_allocatable_evict_threshold_pct,
            lower_pct=policy.cpu_allocatable_evict_lower_pct,
            priority_max=policy.allocatable_evict_priority_threshold,
        )
        tasks.append(allocatable_task(feature, measure, node=node, at=at, order=order))
    if (feature := "CPUEvict") in features:
        threshold = UsageThreshold(threshold_pct=policy.cpu_evict_threshold_pct, lower_pct=policy.cpu_evict_lower_pct)
        priority_max = policy.evict_enabled_priority_threshold
        tasks.append(used_task(feature, measure, node=node, at=threshold, priority_max=priority_max, order=order))
    return evict(tasks)


def by_satisfaction(
    feature: str, *, window: BeCpuWindow, allocatable_milli: int | None, policy: ResourceThreshold
) -> Release:
    """Compute request x (upper% - limit / request): the smaller of the window's average and the last sample."""
    lower_pct, upper_pct = policy.cpu_evict_be_satisfaction_lower_pct, policy.cpu_evict_be_satisfaction_upper_pct
    if lower_pct is None or upper_pct is None or not 0 < lower_pct <= min(LOWER_PCT_MAX, upper_pct) or upper_pct >= 100:
        return invalid(feature, lower_pct=lower_pct, upper_pct=upper_pct)
    of = f"{feature}/{_BATCH_CPU}"
    window_s = max(window.interval_s, policy.cpu_evict_time_window_s or window.interval_s)
    terms: Terms = {"window_s": window_s, "sampled_s": window.samples * window.interval_s}
    if terms["sampled_s"] < window_s // 3:
        return nothing(of, "too_few_samples", terms)
    terms |= {"lower_pct": lower_pct, "upper_pct": upper_pct, "busy_pct": policy.cpu_evict_be_usage_threshold_pct}
    amounts: list[int] = []
    for name, measured in (("average", window.average), ("current", window.current)):
        be = measured
        if policy.cpu_evict_policy == "evictByAllocatable":
            # Without allocatable there is no limit. A 0 becomes 1, so that satisfaction can be computed.
            limit_milli = -1 if allocatable_milli is None else max(allocatable_milli, 1)
            be = msgspec.structs.replace(measured, limit_milli=limit_milli)
        bound, amount, found = _release(be, lower_pct / 100, upper_pct / 100, terms["busy_pct"] / 100)
        terms |= {f"{name}_{term}": value for term, value in found.items()}
        if amount <= 0:
            return nothing(of, f"{name}_{bound}", terms)
        amounts.append(amount)
    release_milli = min(amounts)
    bound = "formula" if release_milli == amounts[0] else "capped"
    because = Because(of=of, bound=bound, terms=terms | {"release_milli": release_milli})
    return Release(status="release", amounts={_BATCH_CPU: release_milli}, because=(because,))


def _release(be: BeCpu, lower: float, upper: float, busy: float) -> tuple[str, int, Terms]:
    """Return bound, amount and terms of one measurement."""
    terms: Terms = {"usage_milli": be.usage_milli, "request_milli": be.request_milli, "limit_milli": be.limit_milli}
    if be.limit_milli <= 0:
        return "unlimited", 0, terms
    # Below one core, pods are throttled even at low usage.
    if be.limit_milli >= ONE_CORE_MILLI and be.usage_milli / be.limit_milli < busy:
        return "not_busy", 0, terms
    if be.request_milli <= 0:
        return "no_request", 0, terms
    satisfaction = be.limit_milli / be.request_milli
    terms["satisfied_ratio"] = satisfaction
    if satisfaction > lower:
        return "satisfied", 0, terms
    amount = int(be.request_milli * (upper - satisfaction))
    return "satisfied", amount, terms | {"release_milli": amount}


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to evict, and the reason."""

    pod: Pod
    rule: str
    """The feature that evicts it."""
    bound: str
    terms: Terms


def evictions(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[Eviction, ...]:
    """Return the victims in order: by memory, then by CPU. Each pod is listed once.

    A node that explores evicts none because its best-effort pods lack CPU.
    """
    threshold, held = resource_threshold_on(policy, facts), sample.evict
    features = _acting(threshold)
    if held.since_mem_ms is not None and held.since_mem_ms < MEMORY_COOL_MS:
        features -= MEMORY_RULES
    if held.since_cpu_ms is not None and held.since_cpu_ms < CPU_COOL_MS:
        features -= CPU_RULES
    if BY_SATISFACTION in features:
        window_s = threshold.cpu_evict_time_window_s or 1
        if starved_by_exploring(policy, facts, sample.observed_ms, window_s):
            features -= {BY_SATISFACTION}
    if not features or (features <= _BY_MEMORY_USED and mem_below_line(sample, facts, threshold)):
        return ()
    order = Order(dying_first=True, free_first=True, classes_first=True, sub_priority=threshold.sub_priority_enable)
    dying = frozenset(held.dying)
    by_memory: tuple[Eviction, ...] = ()
    if features & MEMORY_RULES:
        node = EvictNode(
            capacity=facts.capacity.mem_bytes or 0,
            used=sample.use.mem_bytes,
            allocatable=facts.allocatable,
            pods=_Pods(sample, pods, "mem_bytes", dying),
        )
        by_memory = tuple(_named(memory_evict(node, features=features, policy=threshold, order=order)))
    if not features & CPU_RULES:
        return by_memory
    used_milli = sample.use.cpu_milli
    if threshold.cpu_evict_time_window_s is not None:
        node_milli = None if held.be_cpu is None else held.be_cpu.node_usage_milli
        used_milli = None if node_milli is None else int(node_milli)
    cpu = CpuEvictNode(
        capacity=facts.capacity.cpu_milli or 0,
        used=used_milli,
        allocatable=facts.allocatable,
        pods=_Pods(sample, pods, "cpu_milli", dying.union(one.pod.uid for one in by_memory)),
        be=held.be_cpu or NOT_MEASURED,
    )
    return by_memory + tuple(_named(cpu_evict(cpu, features=features, policy=threshold, order=order)))


@lru_cache(maxsize=64)
def _acting(threshold: ResourceThreshold) -> frozenset[str]:
    """Return the features that the thresholds enable."""
    return frozenset(name for name, lacks in _LACKS.items() if not lacks(threshold))


def evicts_by_memory_alone(threshold: ResourceThreshold) -> bool:
    """Return whether only features by used memory are active, or none."""
    return _acting(threshold) <= _BY_MEMORY_USED


def mem_below_line(sample: NodeSample, facts: NodeFacts, threshold: ResourceThreshold) -> bool:
    """Return whether no memory is to be released: usage is below the threshold, or a value is unknown."""
    used, capacity, line_pct = sample.use.mem_bytes, facts.capacity.mem_bytes, threshold.mem_evict_threshold_pct
    return not used or not capacity or line_pct is None or used * 100 // capacity < line_pct


class _Pods(Sequence[EvictPod]):
    """Each live pod that has usage, is pending or was just evicted, once.

    They are built on first access, because most samples are below every threshold.
    """

    def __init__(self, sample: NodeSample, pods: Sequence[Pod], measure: Measure, dying: Collection[str]) -> None:
        self._given = sample, pods, measure, dying

    @cached_property
    def _made(self) -> list[EvictPod]:
        sample, pods, measure, dying = self._given
        uses = {use.uid: use for use in sample.pod_use}
        listed = {pod.uid: pod for pod in pods if pod.phase in LIVE_PHASES}
        return [
            self._evictable(pod, uses.get(uid, _NOWHERE), measure, dying)
            for uid, pod in listed.items()
            if uid in uses or uid in dying or pod.phase == "Pending"
        ]

    def _evictable(self, pod: Pod, use: PodUse, measure: Measure, dying: Collection[str]) -> EvictPod:
        used: int | None = getattr(use, measure)
        if pod.uid in dying:  # its cgroup may end before the pod list drops it
            return EvictPod(pod=pod, used=used or 0, already_evicted=True)
        held = self._given[0].evict
        touchable = use.best_effort_group and is_best_effort(pod) and pod.uid not in held.stuck
        return EvictPod(pod=pod, used=used, kept=pod.uid in held.kept, spared=not touchable)

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]


def _named(found: Evictions) -> Iterator[Eviction]:
    """Yield the evictions: the rule, the terms of its release, and what the victim frees."""
    tasks = {task.feature: task for task in found.tasks}
    for victim in found.victims:
        task = tasks[victim.feature]
        frees = task.frees(victim.pod)
        because = next(one for one in task.release.because if one.of.rpartition("/")[2] in frees)
        own = {f"victim_{task.kind}_{resource}": amount for resource, amount in frees.items()}
        yield Eviction(pod=victim.pod.pod, rule=task.feature, bound=because.bound, terms=because.terms | own)


HOLDS = frozenset({"throttled", "lifted", "frozen", "thawed"})
"""Bounds of actions that throttle or freeze best-effort pods, and of those that end it."""
NOTICE = "notice"
"""Bound of an eviction's announcement, and of each wait for it."""
ENDS = frozenset({"ended", "killed", "stuck"})
"""Bounds of how an eviction ended."""


def audited(outcome: NodeOutcome) -> bool:
    """Return whether the audit keeps an outcome: actions on pods and failures, but no requests or dry runs.

    Memory reclaimed from a pod is kept, at most every 5 s for each pod.
    """
    if outcome.knob is not None or outcome.result in {"refused", "dry-run", "gap"}:
        return False
    if outcome.reclaimed is not None:
        return outcome.result == "applied"
    if outcome.pod is None:  # the best-effort limit: the audit omits suppression
        return outcome.bound in HOLDS and outcome.rule in MEMORY_RULES | CPU_RULES
    return outcome.result != "unchanged" or outcome.bound in HOLDS


def observed(terms: Terms) -> str:
    """Format the observed value and its threshold; "" if the rule is unknown, or a term is missing."""
    if terms.keys() >= {"used_pct", "threshold_pct"}:
        return f"{terms['used_pct']:g}% used, threshold {terms['threshold_pct']:g}%"
    if terms.keys() >= {"average_satisfied_ratio", "lower_pct"}:
        ratio = 100 * terms["average_satisfied_ratio"]
        return f"{ratio:.0f}% of the requested CPU was available, threshold {terms['lower_pct']:g}%"
    for unit in ("milli", "bytes"):
        offered = terms.get(f"allocatable_{unit}")
        if offered is not None and terms.keys() >= {f"requested_{unit}", "threshold_pct"}:
            share = f"{100 * terms[f'requested_{unit}'] / offered:.0f}%" if offered else "more than 100%"
            return f"{share} of the batch allocatable was requested, threshold {terms['threshold_pct']:g}%"
    return ""
