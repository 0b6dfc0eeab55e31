"""Computes the CPU time that pods may save up and use at once (``cpu.cfs_burst_us``), and the CPU quotas to change.

An annotation may override the node's configuration. Throttled containers may exceed their limit; ``cpu_burst_quota``
decides about each. A pod's quota is its limit plus what its containers hold above theirs. Adding each step to the
current quota would drift, even to 0 or below, after a refused or foreign write. Reading: koordinator a7a1b76b,
pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, genPodBurstConfig, calcStaticCPUBurstVal; pkg/util/pod.go,
IsPodCPUBurstable, IsPodInactive; apis/slo/v1alpha1/pod.go. The arithmetic follows the order of the reference, which
decides the last digit. Unlike the reference, a burst is at most the quota, because Linux rejects a larger one (EINVAL).
A group without a quota is skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.kubernetes_pod import PodBurst
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import cpu_burst_on
from slacktide.schemas.policy.strategies import BurstPolicy, CpuBurst
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import ContainerBurst, NodeSample
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    Limiter,
    SharePool,
    SharePoolPod,
    lends,
    limit,
    next_quotas,
    share_pool,
    used_pct,
)
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US

_POLICIES: tuple[BurstPolicy, ...] = get_args(BurstPolicy)


def may_burst(pod: Pod) -> bool:
    """Return whether CPU burst applies: the pod is live, not best-effort, and has no exclusive CPUs."""
    own = pod.exclusive_cpus or raw_qos(pod.qos_label) in {"LSR", "LSE", "BE"}
    return pod.phase in LIVE_PHASES and not own


def burst_policy(text: str | None) -> BurstPolicy:
    """Return the policy of that name; ``none`` for an unknown name."""
    return next((policy for policy in _POLICIES if policy == text), "none")


def pod_burst_config(node: CpuBurst, annotation: str | None) -> CpuBurst:
    """Override the node's configuration with the pod's annotation. An invalid annotation is ignored as a whole."""
    if annotation is None:
        return node
    try:
        decoded: PodBurst = json_of(annotation, PodBurst, where="")
    except TextError:
        return node
    fields = {
        "policy": burst_policy(decoded.policy) if decoded.policy else None,
        "cpu_burst_pct": decoded.cpu_burst_percent,
        "cfs_quota_burst_pct": decoded.cfs_quota_burst_percent,
        "cfs_quota_burst_period_s": decoded.cfs_quota_burst_period_seconds,
    }
    return msgspec.structs.replace(node, **{name: value for name, value in fields.items() if value is not None})


def container_quota_us(limit_milli: int | None) -> int | None:
    """Return a container's quota; None without a limit."""
    return max(QUOTA_US_MIN, limit_milli * PERIOD_US // 1000) if limit_milli else None


def pod_quota_us(pod: Pod) -> int | None:
    """Return a pod's quota. None if a container has no limit and the pod as a whole has none."""
    limited = pod.cpu_limited_whole or all(one.limits.cpu_milli for one in pod.containers)
    return container_quota_us(pod.limits.cpu_milli) if limited else None


def spec_quotas_us(pod: Pod) -> dict[str, int]:
    """Return the quotas that the kubelet sets by CPU limits, by the group of the pod and of each container."""
    quotas_us = {pod_group(pod.uid): pod_quota_us(pod)} | {
        container_group(pod.uid, one.name): container_quota_us(one.limits.cpu_milli) for one in pod.containers
    }
    return {group: quota_us for group, quota_us in quotas_us.items() if quota_us is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstValue:
    """The burst of one container, per 100 ms period."""

    burst_us: int
    bound: str
    """``formula``, ``off`` (the policy has no CPU burst) or ``no_limit``."""
    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBurstValue:
    """The burst of a pod, and of each container in the given order."""

    burst_us: int
    containers: tuple[BurstValue, ...]


def cfs_burst(limit_milli: int | None, config: CpuBurst) -> BurstValue:
    """Compute a container's burst: ``cpu_burst_pct`` of its limit, at least 0. A limit of None or 0 is none."""
    if config.policy not in {"auto", "cpuBurstOnly"}:
        return BurstValue(burst_us=0, bound="off", terms={"burst_us": 0})
    if not limit_milli:
        return BurstValue(burst_us=0, bound="no_limit", terms={"burst_us": 0})
    cores = (limit_milli / 1000) * (config.cpu_burst_pct / 100)
    burst_us = max(0, int(cores * PERIOD_US))
    terms: Terms = {
        "limit_milli": limit_milli,
        "cpu_burst_pct": config.cpu_burst_pct,
        "burst_cores": cores,
        "burst_us": burst_us,
    }
    return BurstValue(burst_us=burst_us, bound="formula", terms=terms)


def pod_cfs_burst(limits_milli: Iterable[int | None], config: CpuBurst) -> PodBurstValue:
    """Sum the bursts of a pod's containers."""
    containers = tuple(cfs_burst(limit_milli, config) for limit_milli in limits_milli)
    return PodBurstValue(burst_us=sum(one.burst_us for one in containers), containers=containers)


BURST_RULE = "CPUBurst"


def cpu_burst(pods: Sequence[Pod], config: CpuBurst) -> Iterator[WantedSetting]:
    """Yield the bursts of all pods that may burst, by the node's strategy and their annotation."""
    for pod in pods:
        if not may_burst(pod):
            continue
        burst = pod_cfs_burst((one.limits.cpu_milli for one in pod.containers), pod_burst_config(config, pod.cpu_burst))
        for one, value in zip(pod.containers, burst.containers, strict=True):
            quota_us = container_quota_us(one.limits.cpu_milli)
            if quota_us is not None and value.burst_us:
                yield _burst_setting(container_group(pod.uid, one.name), value.burst_us, quota_us, value.terms)
        quota_us = pod_quota_us(pod)
        if quota_us is not None and burst.burst_us:
            yield _burst_setting(pod_group(pod.uid), burst.burst_us, quota_us, {"burst_us": burst.burst_us})


def _burst_setting(group: str, burst_us: int, quota_us: int, terms: Terms) -> WantedSetting:
    fits_us = min(burst_us, quota_us)
    bound, terms = "formula" if fits_us == burst_us else "quota", terms | {"quota_us": quota_us}
    return WantedSetting(group, "cfs_burst_us", fits_us, BURST_RULE, bound, terms)


QUOTA_RULE = "CFSQuotaBurst"
OFF = CpuBurst()


def burst_settings(
    sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy
) -> tuple[WantedSetting, ...]:
    """Return the quotas to change, in an order in which no container exceeds its pod."""
    if not sample.burst:
        return ()
    config = cpu_burst_on(policy, facts)
    used = {use.uid: use.cpu_milli for use in sample.pod_use}
    shared = [
        SharePoolPod(
            qos_label="LSE" if pod.exclusive_cpus else pod.qos_label,
            request_milli=pod.requests.cpu_milli or 0,
            used_cores=None if (used_milli := used.get(pod.uid)) is None else used_milli / 1000,
        )
        for pod in pods
        if pod.phase in LIVE_PHASES
    ]
    cpu_milli, node_milli = facts.capacity.cpu_milli, sample.use.cpu_milli
    pool = share_pool(
        node_cpus=(cpu_milli or 0) // 1000,
        node_used_cores=None if node_milli is None or not cpu_milli else node_milli / 1000,
        pods=shared,
        threshold_pct=config.share_pool_threshold_pct,
    )
    return _settings(sample.burst, pods, pool, lambda pod: pod_burst_config(config, pod.cpu_burst))


def handed_back(burst: Sequence[ContainerBurst], pods: Sequence[Pod]) -> tuple[WantedSetting, ...]:
    """Return the changes that reset quotas above their limits, whatever the policy."""
    unknown = share_pool(node_cpus=0, node_used_cores=None, pods=(), threshold_pct=0)
    return _settings(burst, pods, unknown, lambda _: OFF)


def movable(pod: Pod, held: Sequence[ContainerBurst], config: CpuBurst) -> list[ContainerBurst]:
    """Return which of the limited containers may change: all if the pod's quota exceeds their need."""
    over_us = {one.container: one.quota_us - _base_us(pod, one.container) for one in held}
    pod_base_us = pod_quota_us(pod)
    if held and pod_base_us is not None:
        needed_us = pod_base_us + sum(max(0, over) for over in over_us.values())
        if held[0].pod_quota_us > needed_us:
            return list(held)
    lent = lends(config)
    return [one for one in held if over_us[one.container] > 0 or (lent and (one.throttled_ratio or 0) > 0)]


def next_limiter(one: ContainerBurst, limit_milli: int, config: CpuBurst) -> Limiter | None:
    """Return the container's limiter after the decision; None without a limiter."""
    container = _container(one, limit_milli)
    pct = used_pct(container.used_cores, limit_milli)
    return limit(config, container.limiter, start=one.start_tokens, used_pct=pct, elapsed_s=one.elapsed_s).limiter


def _settings(
    burst: Sequence[ContainerBurst], pods: Sequence[Pod], pool: SharePool, config_of: Callable[[Pod], CpuBurst]
) -> tuple[WantedSetting, ...]:
    held: dict[str, list[ContainerBurst]] = {}
    for one in burst:
        held.setdefault(one.pod, []).append(one)
    settings: list[WantedSetting] = []
    for pod in pods:
        if pod.uid in held and may_burst(pod):
            settings += _of_pod(pod, held[pod.uid], config_of(pod), pool)
    return tuple(settings)


def _of_pod(pod: Pod, held: Sequence[ContainerBurst], config: CpuBurst, pool: SharePool) -> list[WantedSetting]:
    """Return cuts first, then the pod, then raises."""
    limits = {one.name: one.limits.cpu_milli for one in pod.containers}
    limited = [one for one in held if limits.get(one.container) and one.quota_us > 0]
    containers = [_container(one, limits[one.container]) for one in limited]
    held_us, over_us = held[0].pod_quota_us, 0
    quotas = next_quotas(config=config, node_state=pool.state, pod_quota_us=held_us, containers=containers)
    cuts, raises = list[WantedSetting](), list[WantedSetting]()
    for one, quota in zip(limited, quotas.containers, strict=True):
        wanted_us = max(QUOTA_US_MIN, quota.quota_us)
        if not lends(config):  # a quota below its limit is kept
            wanted_us = min(wanted_us, one.quota_us)
        over_us += max(0, wanted_us - _base_us(pod, one.container))
        if wanted_us != one.quota_us:
            terms = pool.terms | quota.because.terms
            group = container_group(pod.uid, one.container)
            setting = WantedSetting(group, "cfs_quota_us", wanted_us, QUOTA_RULE, quota.because.bound, terms)
            (cuts if wanted_us < one.quota_us else raises).append(setting)
    whole = []
    base_us = pod_quota_us(pod)
    if held_us > 0 and base_us is not None:
        wanted_us = base_us + over_us
        if wanted_us < held_us or (wanted_us > held_us and lends(config)):
            terms = {"base_us": base_us, "over_us": over_us, "current_us": held_us, "quota_us": wanted_us}
            whole = [WantedSetting(pod_group(pod.uid), "cfs_quota_us", wanted_us, QUOTA_RULE, "formula", terms)]
    return [*cuts, *whole, *raises]


def _base_us(pod: Pod, container: str) -> int:
    limit_milli = next((one.limits.cpu_milli for one in pod.containers if one.name == container), None)
    return container_quota_us(limit_milli) or QUOTA_US_MIN


def _container(one: ContainerBurst, limit_milli: int | None) -> BurstContainer:
    known = one.tokens is not None and one.capacity_tokens is not None
    return BurstContainer(
        name=one.container,
        limit_milli=limit_milli,
        quota_us=one.quota_us,
        throttled_ratio=one.throttled_ratio,
        used_cores=None if one.used_milli is None else one.used_milli / 1000,
        limiter=Limiter(capacity_tokens=one.capacity_tokens or 0, tokens=one.tokens or 0) if known else None,
        start_tokens=one.start_tokens,
        elapsed_s=one.elapsed_s,
    )
