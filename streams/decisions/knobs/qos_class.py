"""Computes the knobs of QoS classes: ``memory.min``, ``memory.low``, ``memory.high``, and weight or ``cpu.idle``.

Memory: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cgreconcile/cgroup_reconcile.go; plugins/helpers
(GetPodResourceQoSByQoSClass). Unlike the reference, a knob with the kernel's default in the strategy is not written.

CPU runs best-effort pods last. The reference's group identity needs the kernel of Anolis OS (``cpu.bvt_warp_ns``).
Other kernels have the weight instead: 2, which the kubelet also gives the tier. An idle group accepts no weight. A
kubelet that restarts over an idle tier exits, because it fails to write the tier's weight. ``podIdle`` therefore makes
each best-effort pod idle, not the tier. Reading: apis/slo/v1alpha1/nodeslo_types.go (CPUQOS);
pkg/koordlet/runtimehooks/hooks/{groupidentity,coresched,cpuidle}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import LIVE_PHASES, Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import BEST_EFFORT_TIER, TIERS, container_group, pod_group
from slacktide.schemas.knob_table import PAGE_BYTES, SHARES_MIN, Knob
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.resource_qos import MemoryQos, QosClass, ResourceQos
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.known_pods import is_spared

_CLASSES = {"LSE": "lsrClass", "LSR": "lsrClass", "LS": "lsClass", "BE": "beClass", "SYSTEM": "systemClass"}


@dataclass(frozen=True, slots=True)
class _Class:
    """A pod's QoS class and its memory strategy."""

    name: str
    config: MemoryQos

    def setting(self, group: str, knob: Knob, value: int, bound: str, terms: Terms) -> WantedSetting:
        return WantedSetting(
            group=group, knob=knob, value=value, rule=f"MemoryQOS ({self.name})", bound=bound, terms=terms
        )


def memory_qos(pods: Sequence[Pod], facts: NodeFacts, strategy: ResourceQos) -> Iterator[WantedSetting]:
    """Yield the memory knobs of pods, their containers and their tiers, for all enabled classes."""
    protected: list[tuple[Pod, WantedSetting]] = []
    for pod in pods:
        of = _class_of(pod, strategy)
        if pod.phase not in LIVE_PHASES or not of.config.enable:
            continue
        for one in _protection(pod_group(pod.uid), _amount_bytes(pod.requests, of), of):
            protected.append((pod, one))
            yield one
        for container in pod.containers:
            yield from _container(pod, container, facts, of)
    yield from _tiers(protected)


def _class_of(pod: Pod, strategy: ResourceQos) -> _Class:
    name = _CLASSES[effective_qos(pod.qos_label, pod.kube_qos)]
    configs: dict[str, QosClass] = {
        "lsrClass": strategy.lsr,
        "lsClass": strategy.ls,
        "beClass": strategy.be,
        "systemClass": strategy.system,
    }
    return _Class(name, configs[name].mem)


def _container(pod: Pod, container: Container, facts: NodeFacts, of: _Class) -> Iterator[WantedSetting]:
    group, request_bytes = container_group(pod.uid, container.name), _amount_bytes(container.requests, of)
    protection = list(_protection(group, request_bytes, of))
    yield from protection
    limit_bytes = _amount_bytes(container.limits, of) or facts.allocatable.mem_bytes
    if of.config.throttling_pct and limit_bytes:
        min_bytes = next((one.value or 0 for one in protection if one.knob == "mem_min_bytes"), 0)
        yield _high(group, request_bytes, max(limit_bytes, request_bytes), min_bytes, of)


def _protection(group: str, request_bytes: int, of: _Class) -> Iterator[WantedSetting]:
    """Yield ``memory.min``, and a ``memory.low`` that is at least as high."""
    config = of.config
    min_bytes = request_bytes * config.min_limit_pct // 100
    low_bytes = request_bytes * config.low_limit_pct // 100
    if min_bytes:
        terms: Terms = {"request_bytes": request_bytes, "min_limit_pct": config.min_limit_pct, "min_bytes": min_bytes}
        yield of.setting(group, "mem_min_bytes", min_bytes, "formula", terms)
    if low_bytes:
        bound = "formula" if low_bytes >= min_bytes else "min"
        low_bytes = max(low_bytes, min_bytes)
        terms = {"request_bytes": request_bytes, "low_limit_pct": config.low_limit_pct, "low_bytes": low_bytes}
        yield of.setting(group, "mem_low_bytes", low_bytes, bound, terms)


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
    return of.setting(group, "mem_high_bytes", high_bytes, bound, terms)


def _tiers(protected: Sequence[tuple[Pod, WantedSetting]]) -> Iterator[WantedSetting]:
    """Yield the sum of each tier, and of all at the top. A group protects at most what its parents protect."""
    knobs: tuple[Knob, ...] = ("mem_min_bytes", "mem_low_bytes")
    for kube_qos, group in TIERS.items():
        for knob in knobs:
            parts = [
                one.value or 0
                for pod, one in protected
                if one.knob == knob and kube_qos in {pod.kube_qos, "Guaranteed"}
            ]
            if parts:
                terms: Terms = {"pods": len(parts), "sum_bytes": sum(parts)}
                yield WantedSetting(
                    group=group, knob=knob, value=sum(parts), rule="MemoryQOS", bound="sum", terms=terms
                )


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
        yield WantedSetting(
            group=BEST_EFFORT_TIER,
            knob="cpu_shares",
            value=SHARES_MIN,
            rule="CPUQOS (beClass)",
            bound="weight",
            terms={"group_identity": cpu.group_identity, "cpu_shares": SHARES_MIN},
        )
    if by != "groupIdentity" and cpu.sched_idle:
        pods_of_tier = [pod_group(pod.uid) for pod in pods if runs_last(pod) and pod.phase in LIVE_PHASES]
        for group in [BEST_EFFORT_TIER] if by == "coreSched" else pods_of_tier:
            yield WantedSetting(
                group=group,
                knob="cpu_idle",
                value=1,
                rule="CPUQOS idle (beClass)",
                bound="asked",
                terms={"sched_idle": cpu.sched_idle},
            )


def runs_last(pod: Pod) -> bool:
    """Return whether a pod may be idle: it is best-effort, and neither mid nor critical."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    return best_effort and effective_priority_class(pod) in _LAST and not is_spared(pod)
