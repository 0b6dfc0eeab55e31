"""Who shall leave a node, by memory and by CPU: the live side of the eviction rules.

Only what is best-effort by the pod list and lies under the best-effort group may go, whatever a policy or a label
says. Nobody is named while the last eviction of the kind is young: it has yet to show in the node's use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import colocation_on, resource_threshold_on
from slacktide.schemas.policy.features import FEATURES
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample, PodUse
from slacktide.streams.decisions import cpu_evict, memory_evict
from slacktide.streams.decisions.evict_loop import Evictions, EvictTask
from slacktide.streams.decisions.evict_pod import EvictPod
from slacktide.streams.decisions.evict_satisfaction import NOT_MEASURED
from slacktide.streams.decisions.evict_tasks import EvictNode

MEMORY_RULES, CPU_RULES = frozenset(memory_evict.FEATURES), frozenset(cpu_evict.FEATURES)
"""By which of the two a victim goes, its cool-down is told."""
MEMORY_COOL_MS, CPU_COOL_MS = 4_000, 20_000
_NOWHERE = PodUse(uid="")
_LACKS = {feature.name: feature.lacks for feature in FEATURES if feature.name in MEMORY_RULES | CPU_RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that shall go, and why."""

    pod: Pod
    rule: str
    """The feature that wants it."""
    bound: str
    terms: Terms


def evictions(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[Eviction, ...]:
    """The victims, the first one first: those by memory, then those by CPU. A pod is named once."""
    threshold = resource_threshold_on(policy, facts)
    features = {name for name, lacks in _LACKS.items() if not lacks(threshold)}
    if _young(sample.evict.since_mem_ms, MEMORY_COOL_MS):
        features -= MEMORY_RULES
    if _young(sample.evict.since_cpu_ms, CPU_COOL_MS):
        features -= CPU_RULES
    if not features:
        return ()
    node = _Node(sample, facts, pods, threshold, free_first=colocation_on(policy, facts).free_class_enable)
    dying = set(sample.evict.dying)
    by_memory = list(_named(node.by_memory(features, dying)))
    dying.update(one.pod.uid for one in by_memory)
    return (*by_memory, *_named(node.by_cpu(features, dying)))


def _young(since_ms: int | None, cool_ms: int) -> bool:
    return since_ms is not None and since_ms < cool_ms


@dataclass(frozen=True, slots=True)
class _Node:
    """A sample as the rules want it."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]
    threshold: ResourceThreshold
    free_first: bool

    def by_memory(self, features: Collection[str], dying: Collection[str]) -> Evictions:
        node = EvictNode(
            capacity=self.facts.capacity.mem_bytes or 0,
            used=self.sample.use.mem_bytes,
            allocatable=self.facts.allocatable,
            pods=[_evictable(pod, use, use.mem_bytes, dying) for pod, use in self._pods_and_use()],
        )
        return memory_evict.memory_evict(
            node, features=features, policy=self.threshold, free_first=self.free_first, dying_first=True
        )

    def by_cpu(self, features: Collection[str], dying: Collection[str]) -> Evictions:
        node = cpu_evict.CpuEvictNode(
            capacity=self.facts.capacity.cpu_milli or 0,
            used=self._cpu_milli(),
            allocatable=self.facts.allocatable,
            pods=[_evictable(pod, use, use.cpu_milli, dying) for pod, use in self._pods_and_use()],
            be=self.sample.evict.be_cpu or NOT_MEASURED,
        )
        return cpu_evict.cpu_evict(
            node, features=features, policy=self.threshold, free_first=self.free_first, dying_first=True
        )

    def _pods_and_use(self) -> Iterator[tuple[Pod, PodUse]]:
        """Each pod once, but those that are over; what the kernel does not have uses nothing known in no group."""
        uses = {use.uid: use for use in self.sample.pod_use}
        for uid, pod in {pod.uid: pod for pod in self.pods if pod.phase in LIVE_PHASES}.items():
            yield pod, uses.get(uid, _NOWHERE)

    def _cpu_milli(self) -> int | None:
        """Over the policy's window; where it names none, since the previous sample."""
        if self.threshold.cpu_evict_time_window_s is None:
            return self.sample.use.cpu_milli
        be = self.sample.evict.be_cpu
        return None if be is None or be.node_usage_milli is None else int(be.node_usage_milli)


def _evictable(pod: Pod, use: PodUse, used: int | None, dying: Collection[str]) -> EvictPod:
    if pod.uid in dying:  # the kernel may be rid of it before the pod list is
        return EvictPod(pod=pod, used=used or 0, already_evicted=True)
    return EvictPod(pod=pod, used=used, spared=not (use.best_effort_group and is_best_effort(pod)))


def _named(found: Evictions) -> Iterator[Eviction]:
    tasks = {task.feature: task for task in found.tasks}
    for victim in found.victims:
        yield _eviction(victim.pod, tasks[victim.feature])


def _eviction(victim: EvictPod, task: EvictTask) -> Eviction:
    """Rule, threshold and observed value: the arithmetic that asked for it, then what the victim frees."""
    frees = task.frees(victim)
    because = next(one for one in task.release.because if one.of.rpartition("/")[2] in frees)
    own = {f"victim_{task.kind}_{resource}": amount for resource, amount in frees.items()}
    return Eviction(pod=victim.pod, rule=task.feature, bound=because.bound, terms=because.terms | own)
