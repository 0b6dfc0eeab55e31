"""Selects the pods to evict from a node, by memory and by CPU, from one sample; which outcomes the audit keeps.

Only pods that are best-effort by the pod list and in the best-effort cgroup are evicted, whatever a policy or label
sets. Each kind has a cool-down after an eviction, because usage does not show the eviction yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.policy.features import FEATURES
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample, PodUse
from slacktide.streams.decisions.evict import cpu_evict, memory_evict
from slacktide.streams.decisions.evict.cpu_evict import NOT_MEASURED
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Measure, Order
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictNode, EvictTask

MEMORY_RULES, CPU_RULES = frozenset(memory_evict.FEATURES), frozenset(cpu_evict.FEATURES)
MEMORY_COOL_MS, CPU_COOL_MS = 4_000, 20_000
_BY_MEMORY_USED = frozenset({"BEMemoryEvict", "MemoryEvict"})
_NOWHERE = PodUse(uid="")
_LACKS = {feature.name: feature.lacks for feature in FEATURES if feature.name in MEMORY_RULES | CPU_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to evict, and the reason."""

    pod: Pod
    rule: str
    """The feature that evicts it."""
    bound: str
    terms: Terms


def evictions(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[Eviction, ...]:
    """Return the victims in order: by memory, then by CPU. Each pod is listed once."""
    threshold = resource_threshold_on(policy, facts)
    features = _acting(threshold)
    if _young(sample.evict.since_mem_ms, MEMORY_COOL_MS):
        features -= MEMORY_RULES
    if _young(sample.evict.since_cpu_ms, CPU_COOL_MS):
        features -= CPU_RULES
    if not features or (features <= _BY_MEMORY_USED and mem_below_line(sample, facts, threshold)):
        return ()
    node = _Node(sample, facts, pods, threshold)
    dying = frozenset(sample.evict.dying)
    by_memory: tuple[Eviction, ...] = ()
    if features & MEMORY_RULES:
        by_memory = tuple(_named(node.by_memory(features, dying)))
    if not features & CPU_RULES:
        return by_memory
    return by_memory + tuple(_named(node.by_cpu(features, dying.union(one.pod.uid for one in by_memory))))


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


def _order(threshold: ResourceThreshold) -> Order:
    return Order(dying_first=True, free_first=True, classes_first=True, sub_priority=threshold.sub_priority_enable)


def _young(since_ms: int | None, cool_ms: int) -> bool:
    return since_ms is not None and since_ms < cool_ms


@dataclass(frozen=True, slots=True)
class _Node:
    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]
    threshold: ResourceThreshold

    def by_memory(self, features: Collection[str], dying: Collection[str]) -> Evictions:
        node = EvictNode(
            capacity=self.facts.capacity.mem_bytes or 0,
            used=self.sample.use.mem_bytes,
            allocatable=self.facts.allocatable,
            pods=_Lazily(lambda: self._pods("mem_bytes", dying)),
        )
        return memory_evict.memory_evict(node, features=features, policy=self.threshold, order=_order(self.threshold))

    def by_cpu(self, features: Collection[str], dying: Collection[str]) -> Evictions:
        node = cpu_evict.CpuEvictNode(
            capacity=self.facts.capacity.cpu_milli or 0,
            used=self._cpu_milli(),
            allocatable=self.facts.allocatable,
            pods=_Lazily(lambda: self._pods("cpu_milli", dying)),
            be=self.sample.evict.be_cpu or NOT_MEASURED,
        )
        return cpu_evict.cpu_evict(node, features=features, policy=self.threshold, order=_order(self.threshold))

    def _pods(self, measure: Measure, dying: Collection[str]) -> list[EvictPod]:
        """Return each live pod once that has usage, is pending or was just evicted."""
        uses = {use.uid: use for use in self.sample.pod_use}
        listed = {pod.uid: pod for pod in self.pods if pod.phase in LIVE_PHASES}
        return [
            self._evictable(pod, uses.get(uid, _NOWHERE), measure, dying)
            for uid, pod in listed.items()
            if uid in uses or uid in dying or pod.phase == "Pending"
        ]

    def _evictable(self, pod: Pod, use: PodUse, measure: Measure, dying: Collection[str]) -> EvictPod:
        used: int | None = getattr(use, measure)
        if pod.uid in dying:  # its cgroup may end before the pod list drops it
            return EvictPod(pod=pod, used=used or 0, already_evicted=True)
        touchable = use.best_effort_group and is_best_effort(pod) and pod.uid not in self.sample.evict.stuck
        return EvictPod(pod=pod, used=used, kept=pod.uid in self.sample.evict.kept, spared=not touchable)

    def _cpu_milli(self) -> int | None:
        """Return the usage over the policy's window; without a window, since the previous sample."""
        if self.threshold.cpu_evict_time_window_s is None:
            return self.sample.use.cpu_milli
        be = self.sample.evict.be_cpu
        return None if be is None or be.node_usage_milli is None else int(be.node_usage_milli)


class _Lazily(Sequence[EvictPod]):
    """Builds the pods on first access, because most samples are below every threshold."""

    def __init__(self, make: Callable[[], list[EvictPod]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> list[EvictPod]:
        return self._make()

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, place: Any) -> Any:
        return self._made[place]


def _named(found: Evictions) -> Iterator[Eviction]:
    tasks = {task.feature: task for task in found.tasks}
    for victim in found.victims:
        yield _eviction(victim.pod, tasks[victim.feature])


def _eviction(victim: EvictPod, task: EvictTask) -> Eviction:
    """Build an eviction: its rule, the terms of the release, and what the victim frees."""
    frees = task.frees(victim)
    because = next(one for one in task.release.because if one.of.rpartition("/")[2] in frees)
    own = {f"victim_{task.kind}_{resource}": amount for resource, amount in frees.items()}
    return Eviction(pod=victim.pod, rule=task.feature, bound=because.bound, terms=because.terms | own)


HOLDS = frozenset({"throttled", "lifted", "frozen", "thawed"})
"""Bounds of actions that throttle or freeze best-effort pods, and of those that end it."""
NOTICE = "notice"
"""Bound of an eviction's announcement, and of each wait for it."""
ENDS = frozenset({"ended", "killed", "stuck"})
"""Bounds of how an eviction ended."""


def audited(outcome: NodeOutcome) -> bool:
    """Return whether the audit keeps an outcome: actions on pods and failures, but no requests or dry runs."""
    if outcome.knob is not None or outcome.result in {"refused", "dry-run", "gap"}:
        return False
    if outcome.pod is None:  # the best-effort limit: the audit omits suppression
        return outcome.bound in HOLDS and outcome.rule in MEMORY_RULES | CPU_RULES
    return outcome.result != "unchanged" or outcome.bound in HOLDS


def observed(terms: Terms) -> str:
    """Format the observed value and its threshold; "" if the rule is unknown."""
    if "used_pct" in terms:
        return f"{terms['used_pct']:g}% used, threshold {terms['threshold_pct']:g}%"
    if "average_satisfied_ratio" in terms:
        ratio = 100 * terms["average_satisfied_ratio"]
        return f"{ratio:.0f}% of the requested CPU was available, threshold {terms['lower_pct']:g}%"
    for unit in ("milli", "bytes"):
        sold = terms.get(f"allocatable_{unit}")
        if sold is not None and f"requested_{unit}" in terms:
            share = f"{100 * terms[f'requested_{unit}'] / sold:.0f}%" if sold else "more than 100%"
            return f"{share} of the batch allocatable was requested, threshold {terms['threshold_pct']:g}%"
    return ""
