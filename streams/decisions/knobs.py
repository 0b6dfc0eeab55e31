"""Computes the knobs of a node's groups except the best-effort CPU limit, and the changes to those that differ.

CPU weight, CPU quota and memory limit of batch, mid and free pods follow from their requests and limits. The kubelet
ignores these resources, and so sets no limits. A free pod always has the minimum weight. Reading: koordinator a7a1b76b,
pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go. Unlike the reference, a knob without a limit in the
spec is not written. Under suppression by quota, quotas stay; cgroup v1 needs them cut to fit.

QoS classes have ``memory.min``, ``memory.low``, ``memory.high``, and weight or ``cpu.idle``. Memory: koordinator
a7a1b76b, pkg/koordlet/qosmanager/plugins/cgreconcile/cgroup_reconcile.go; plugins/helpers
(GetPodResourceQoSByQoSClass). Unlike the reference, a knob with the kernel's default in the strategy is not written.
CPU runs best-effort pods last. The reference's group identity needs the kernel of Anolis OS (``cpu.bvt_warp_ns``).
Other kernels have the weight instead: 2, which the kubelet also gives the tier. An idle group accepts no weight. A
kubelet that restarts over an idle tier exits, because it fails to write the tier's weight. ``podIdle`` therefore makes
each best-effort pod idle, not the tier. Reading: apis/slo/v1alpha1/nodeslo_types.go (CPUQOS);
pkg/koordlet/runtimehooks/hooks/{groupidentity,coresched,cpuidle}.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod, Resources
from slacktide.schemas.knob import BEST_EFFORT_TIER, TIERS, KnobKey, container_group, container_of, pod_group, uid_of
from slacktide.schemas.knob_table import KNOBS, PAGE_BYTES, QUOTA_US_MIN, SHARES_MAX, SHARES_MIN, Knob
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.schemas.policy.resource_qos import MemoryQos, QosClass, ResourceQos
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.schemas.sample import Drift, NodeSample
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.node_burst import (
    burst_settings,
    cpu_burst,
    spec_quotas_us,
)
from slacktide.streams.decisions.cores.sharing import OWN, cpusets
from slacktide.streams.decisions.cores.take import readable
from slacktide.streams.decisions.known_pods import is_spared
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US

ISOLATION = "BEIsolation"
Tier = Literal["batch", "free", "mid"]
_FIELDS: Mapping[Tier, tuple[str, str]] = {
    "batch": ("batch_cpu_milli", "batch_mem_bytes"),
    "free": ("free_cpu_milli", "free_mem_bytes"),
    "mid": ("mid_cpu_milli", "mid_mem_bytes"),
}
"""CPU and memory fields of ``Resources``."""


def isolation(pods: Sequence[Pod], colocation: Colocation) -> Iterator[WantedSetting]:
    """Yield the knobs of all pods with batch, mid or free resources, if colocation is enabled."""
    if not colocation.enable:
        return
    for pod in pods:
        if pod.kube_qos != "BestEffort" or pod.phase not in LIVE_PHASES:
            continue
        # Batch and free resources require class BE.
        best_effort = effective_qos(pod.qos_label, pod.kube_qos) == "BE"
        tiers: Sequence[Tier] = ("batch", "free", "mid") if best_effort else ("mid",)
        parts = [*((one.requests, one.limits) for one in pod.containers), (pod.requests, pod.limits)]
        tier = next((tier for tier in tiers if any(_asks(*part, tier) for part in parts)), None)
        if tier is None:
            continue
        yield from _knobs_of(pod_group(pod.uid), _pod_amounts(pod, tier), tier)
        for one in pod.containers:
            if _asks(one.requests, one.limits, tier):
                yield from _knobs_of(container_group(pod.uid, one.name), _amounts(one.requests, one.limits, tier), tier)


def _asks(requests: Resources, limits: Resources, tier: Tier) -> bool:
    """Return whether there are requests or limits of the tier."""
    cpu, mem = _FIELDS[tier]
    return any((getattr(requests, cpu), getattr(requests, mem), getattr(limits, cpu), getattr(limits, mem)))


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The requests and limits of a group; a limit of 0 is none."""

    request_milli: int
    limit_milli: int
    limit_bytes: int


def _amounts(requests: Resources, limits: Resources, tier: Tier) -> _Amounts:
    cpu, mem = _FIELDS[tier]
    return _Amounts(getattr(requests, cpu) or 0, getattr(limits, cpu) or 0, getattr(limits, mem) or 0)


def _pod_amounts(pod: Pod, tier: Tier) -> _Amounts:
    """Compute a pod's amounts: its containers or its largest init container, plus the RuntimeClass's overhead.

    Without native requests, the pod's native amounts are overhead. A pod has a limit if all its containers and all init
    containers that have not ended have one.
    """
    total = _amounts(pod.requests, pod.limits, tier)
    parts = [_amounts(one.requests, one.limits, tier) for one in pod.containers] or [total]
    overhead_milli, overhead_bytes = pod.requests.cpu_milli or 0, pod.requests.mem_bytes or 0

    def limit(of: Callable[[_Amounts], int], overhead: int) -> int:
        limited = all(of(part) for part in parts) and not pod.init_unlimited
        return max(sum(map(of, parts)), of(total)) + overhead if limited else 0

    return _Amounts(
        max(sum(part.request_milli for part in parts), total.request_milli) + overhead_milli,
        limit(lambda one: one.limit_milli, overhead_milli),
        limit(lambda one: one.limit_bytes, overhead_bytes),
    )


def _knobs_of(group: str, amounts: _Amounts, tier: Tier) -> Iterator[WantedSetting]:
    """Yield the knobs of a group for its requests and limits."""
    request_milli, limit_milli, limit_bytes = amounts.request_milli, amounts.limit_milli, amounts.limit_bytes
    shares = request_milli * 1024 // 1000
    fits = SHARES_MIN if tier == "free" else min(max(shares, SHARES_MIN), SHARES_MAX)
    terms: Terms = {"request_milli": request_milli, "cpu_shares": fits}
    bound = "last" if tier == "free" else "formula" if fits == shares else "kernel_range"
    yield WantedSetting(group, "cpu_shares", fits, ISOLATION, bound, terms)
    if limit_milli:
        quota_us = limit_milli * PERIOD_US // 1000
        fits = max(quota_us, QUOTA_US_MIN)
        terms = {"limit_milli": limit_milli, "quota_us": fits}
        yield WantedSetting(
            group, "cfs_quota_us", fits, ISOLATION, "formula" if fits == quota_us else "kernel_range", terms
        )
    if limit_bytes:
        yield WantedSetting(group, "mem_limit_bytes", limit_bytes, ISOLATION, "formula", {"limit_bytes": limit_bytes})


_CLASSES = {"LSE": "lsrClass", "LSR": "lsrClass", "LS": "lsClass", "BE": "beClass", "SYSTEM": "systemClass"}


@dataclass(frozen=True, slots=True)
class _Class:
    """A pod's QoS class and its memory strategy."""

    name: str
    config: MemoryQos

    @property
    def rule(self) -> str:
        return f"MemoryQOS ({self.name})"


def memory_qos(pods: Sequence[Pod], facts: NodeFacts, strategy: ResourceQos) -> Iterator[WantedSetting]:
    """Yield the memory knobs of pods, their containers and their tiers, for all enabled classes."""
    configs: dict[str, QosClass] = {
        "lsrClass": strategy.lsr,
        "lsClass": strategy.ls,
        "beClass": strategy.be,
        "systemClass": strategy.system,
    }
    protected: list[tuple[Pod, WantedSetting]] = []
    for pod in pods:
        name = _CLASSES[effective_qos(pod.qos_label, pod.kube_qos)]
        of = _Class(name, configs[name].mem)
        if pod.phase not in LIVE_PHASES or not of.config.enable:
            continue
        for one in _protection(pod_group(pod.uid), _amount_bytes(pod.requests, of), of):
            protected.append((pod, one))
            yield one
        for container in pod.containers:
            group, request_bytes = container_group(pod.uid, container.name), _amount_bytes(container.requests, of)
            protection = list(_protection(group, request_bytes, of))
            yield from protection
            limit_bytes = _amount_bytes(container.limits, of) or facts.allocatable.mem_bytes
            if of.config.throttling_pct and limit_bytes:
                min_bytes = next((_bytes(one) for one in protection if one.knob == "mem_min_bytes"), 0)
                yield _high(group, request_bytes, max(limit_bytes, request_bytes), min_bytes, of)
    yield from _tiers(protected)


def _protection(group: str, request_bytes: int, of: _Class) -> Iterator[WantedSetting]:
    """Yield ``memory.min``, and a ``memory.low`` that is at least as high."""
    config = of.config
    min_bytes = request_bytes * config.min_limit_pct // 100
    low_bytes = request_bytes * config.low_limit_pct // 100
    if min_bytes:
        terms: Terms = {"request_bytes": request_bytes, "min_limit_pct": config.min_limit_pct, "min_bytes": min_bytes}
        yield WantedSetting(group, "mem_min_bytes", min_bytes, of.rule, "formula", terms)
    if low_bytes:
        bound = "formula" if low_bytes >= min_bytes else "min"
        low_bytes = max(low_bytes, min_bytes)
        terms = {"request_bytes": request_bytes, "low_limit_pct": config.low_limit_pct, "low_bytes": low_bytes}
        yield WantedSetting(group, "mem_low_bytes", low_bytes, of.rule, bound, terms)


def _high(group: str, request_bytes: int, limit_bytes: int, min_bytes: int, of: _Class) -> WantedSetting:
    """Return the throttling threshold, which is between request and limit, in whole pages."""
    way_bytes = (limit_bytes - request_bytes) * of.config.throttling_pct // 100
    high_bytes = (request_bytes + way_bytes) // PAGE_BYTES * PAGE_BYTES
    bound = "formula" if high_bytes >= min_bytes else "min"
    high_bytes = max(high_bytes, min_bytes)
    terms: Terms = {
        "request_bytes": request_bytes,
        "limit_bytes": limit_bytes,
        "throttling_pct": of.config.throttling_pct,
        "high_bytes": high_bytes,
    }
    return WantedSetting(group, "mem_high_bytes", high_bytes, of.rule, bound, terms)


def _tiers(protected: Sequence[tuple[Pod, WantedSetting]]) -> Iterator[WantedSetting]:
    """Yield the sum of each tier, and of all at the top. A group protects at most what its parents protect."""
    knobs: tuple[Knob, ...] = ("mem_min_bytes", "mem_low_bytes")
    for kube_qos, group in TIERS.items():
        for knob in knobs:
            parts = [
                _bytes(one) for pod, one in protected if one.knob == knob and kube_qos in {pod.kube_qos, "Guaranteed"}
            ]
            if parts:
                terms: Terms = {"pods": len(parts), "sum_bytes": sum(parts)}
                yield WantedSetting(group, knob, sum(parts), "MemoryQOS", "sum", terms)


def _bytes(one: WantedSetting) -> int:
    return one.value if isinstance(one.value, int) else 0


def _amount_bytes(amounts: Resources, of: _Class) -> int:
    """Return batch or free memory for class BE; native or mid memory for other classes."""
    if of.name == "beClass":
        return amounts.batch_mem_bytes or amounts.free_mem_bytes or 0
    return amounts.mem_bytes or amounts.mid_mem_bytes or 0


_LAST = frozenset({"koord-batch", "koord-free"})


def cpu_qos(pods: Sequence[Pod], strategy: ResourceQos) -> Iterator[WantedSetting]:
    """Yield the knob that the strategy selects, for the best-effort tier or for each best-effort pod in it."""
    cpu, by = strategy.be.cpu, strategy.policies.cpu
    if not cpu.enable:
        return
    if by == "groupIdentity" and cpu.group_identity < 0:
        terms: Terms = {"group_identity": cpu.group_identity, "cpu_shares": SHARES_MIN}
        yield WantedSetting(BEST_EFFORT_TIER, "cpu_shares", SHARES_MIN, "CPUQOS (beClass)", "weight", terms)
    if by != "groupIdentity" and cpu.sched_idle:
        pods_of_tier = [pod_group(pod.uid) for pod in pods if runs_last(pod) and pod.phase in LIVE_PHASES]
        for group in [BEST_EFFORT_TIER] if by == "coreSched" else pods_of_tier:
            yield WantedSetting(group, "cpu_idle", 1, "CPUQOS idle (beClass)", "asked", {"sched_idle": cpu.sched_idle})


def runs_last(pod: Pod) -> bool:
    """Return whether a pod may be idle: it is best-effort, and neither mid nor critical."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    return best_effort and effective_priority_class(pod) in _LAST and not is_spared(pod)


RELEASED = "released"
"""The rule that resets a knob to the default of kubelet and kernel if no other rule sets it."""


def wanted(facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Mapping[KnobKey, WantedSetting]:
    """Return all knobs that a rule sets. If two rules set one knob, the first takes precedence."""
    found: dict[KnobKey, WantedSetting] = {}
    strategy = resource_qos_on(policy, facts)
    for one in (
        *isolation(pods, colocation_on(policy, facts)),
        *cpu_qos(pods, strategy),
        *memory_qos(pods, facts, strategy),
        *cpu_burst(pods, cpu_burst_on(policy, facts)),
        *cpusets(facts, pods),
    ):
        found.setdefault(KnobKey(one.group, one.knob), one)
    return found


def drift_settings(
    drift: Sequence[Drift], facts: NodeFacts, pods: Sequence[Pod], policy: Policy
) -> tuple[WantedSetting, ...]:
    """Return the changes to knobs that differ, in an order that the kernel accepts.

    Decreases come first, from inner to outer groups, then increases from outer to inner: a container may not exceed its
    pod. For the same reason, bursts decrease before quotas and increase after them. Pods get CPUs of their own only
    after others have lost these.
    """
    return changes(drift, wanted(facts, pods, policy), pods) if drift else ()


def changes(
    drift: Sequence[Drift], by_key: Mapping[KnobKey, WantedSetting], pods: Sequence[Pod]
) -> tuple[WantedSetting, ...]:
    """Return the changes to these values, or to the defaults of knobs that none is wanted for."""
    known = {pod.uid: pod for pod in pods}
    held = {KnobKey(one.group, one.knob): one.held for one in drift}

    def place(one: WantedSetting) -> tuple[bool, bool, int, bool, str, str]:
        raised = _amount(one.value) > _amount(held[KnobKey(one.group, one.knob)])
        depth, burst = one.group.count("/"), one.knob == "cfs_burst_us"
        return raised, one.bound == OWN, depth if raised else -depth, burst == raised, one.group, one.knob

    found = [by_key.get(key) or released(key, known) for key in held]
    return tuple(sorted((one for one in found if one is not None), key=place))


def released(key: KnobKey, known: Mapping[str, Pod]) -> WantedSetting | None:
    """Return the default of a knob that no rule sets. None if it is not ours or its group does not exist."""
    pod = known.get(uid_of(key.group))
    if pod is None:
        there = key.group in TIERS.values()
        best_effort = key.group == BEST_EFFORT_TIER
    else:
        name = container_of(key.group)
        there = not name or any(one.name == name for one in pod.containers)
        best_effort = pod.kube_qos == "BestEffort"
    if not there:
        return None
    default = KNOBS[key.knob].default
    if KNOBS[key.knob].from_spec and not best_effort:
        quotas_us = spec_quotas_us(pod) if pod is not None and key.knob == "cfs_quota_us" else {}
        default = quotas_us.get(key.group)
        if default is None:
            return None
    return WantedSetting(key.group, key.knob, default, RELEASED, "not_wanted", {})


def _amount(value: KnobValue | None) -> float:
    """Return the value, of CPUs their number; infinity if unlimited."""
    return float("inf") if value is None else len(readable(value)) if isinstance(value, str) else value


__all__ = ["WantedSetting", "settings"]


def settings(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[WantedSetting, ...]:
    """Return the changes by drift, then by bursts. On a knob in both, the burst takes precedence."""
    return (*drift_settings(sample.drift, facts, pods, policy), *burst_settings(sample, facts, pods, policy))
