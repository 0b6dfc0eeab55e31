"""Selects the CPU quotas of latency-sensitive pods to change. Throttled containers may exceed their limit.

``cpu_burst_quota`` decides about each container. A pod's quota is its limit plus what its containers hold above theirs.
Adding each step to the current quota would drift, even to 0 or below, after a refused or foreign write. Reading:
koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import cpu_burst_on
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, NodeSample
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.cpu_burst_node_state import SharePool, SharePoolPod, share_pool
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    Limiter,
    lends,
    limit,
    next_quotas,
    used_pct,
)
from slacktide.streams.decisions.burst.cpu_burst_value import (
    container_quota_us,
    may_burst,
    pod_burst_config,
    pod_quota_us,
)

RULE = "CFSQuotaBurst"
OFF = CpuBurst()


def burst_settings(
    sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy
) -> tuple[WantedSetting, ...]:
    """Return the quotas to change, in an order in which no container exceeds its pod."""
    if not sample.burst:
        return ()
    config = cpu_burst_on(policy, facts)
    pool = _pool(sample, facts, pods, config)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The change of one container."""

    setting: WantedSetting
    rises: int
    """Negative: a cut."""
    over_us: int
    """The new quota above the limit."""


def _of_pod(pod: Pod, held: Sequence[ContainerBurst], config: CpuBurst, pool: SharePool) -> list[WantedSetting]:
    """Return cuts first, then the pod, then raises."""
    steps = _steps(pod, held, config, pool)
    return [
        *(step.setting for step in steps if step.rises < 0),
        *_pod_setting(pod, held[0].pod_quota_us, sum(max(0, step.over_us) for step in steps), config),
        *(step.setting for step in steps if step.rises > 0),
    ]


def _steps(pod: Pod, held: Sequence[ContainerBurst], config: CpuBurst, pool: SharePool) -> list[_Step]:
    limits = {one.name: one.limits.cpu_milli for one in pod.containers}
    limited = [one for one in held if limits.get(one.container) and one.quota_us > 0]
    containers = [_container(one, limits[one.container]) for one in limited]
    quotas = next_quotas(config=config, node_state=pool.state, pod_quota_us=held[0].pod_quota_us, containers=containers)
    steps = []
    for one, quota in zip(limited, quotas.containers, strict=True):
        base_us = _base_us(pod, one.container)
        wanted_us = max(QUOTA_US_MIN, quota.quota_us)
        if not lends(config):  # a quota below its limit is kept
            wanted_us = min(wanted_us, one.quota_us)
        setting = _setting(
            container_group(pod.uid, one.container), wanted_us, quota.because.bound, pool.terms | quota.because.terms
        )
        steps.append(_Step(setting=setting, rises=wanted_us - one.quota_us, over_us=wanted_us - base_us))
    return steps


def _pod_setting(pod: Pod, held_us: int, over_us: int, config: CpuBurst) -> list[WantedSetting]:
    """Return the pod's quota if it changes."""
    base_us = pod_quota_us(pod)
    if held_us <= 0 or base_us is None:
        return []
    wanted_us = base_us + over_us
    if wanted_us == held_us or (wanted_us > held_us and not lends(config)):
        return []
    terms: Terms = {"base_us": base_us, "over_us": over_us, "current_us": held_us, "quota_us": wanted_us}
    return [_setting(pod_group(pod.uid), wanted_us, "formula", terms)]


def _setting(group: str, value: int, bound: str, terms: Terms) -> WantedSetting:
    return WantedSetting(group=group, knob="cfs_quota_us", value=value, rule=RULE, bound=bound, terms=terms)


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


def _pool(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], config: CpuBurst) -> SharePool:
    """Compute the share pool of live pods. Without a known CPU capacity, the state is unknown."""
    used = {use.uid: use.cpu_milli for use in sample.pod_use}
    cpus, node_milli = (facts.capacity.cpu_milli or 0) // 1000, sample.use.cpu_milli

    def pod_of(pod: Pod) -> SharePoolPod:
        used_milli = used.get(pod.uid)
        return SharePoolPod(
            qos_label="LSE" if pod.exclusive_cpus else pod.qos_label,
            request_milli=pod.requests.cpu_milli or 0,
            used_cores=None if used_milli is None else used_milli / 1000,
        )

    return share_pool(
        node_cpus=cpus,
        node_used_cores=None if node_milli is None or not facts.capacity.cpu_milli else node_milli / 1000,
        pods=[pod_of(pod) for pod in pods if pod.phase in LIVE_PHASES],
        threshold_pct=config.share_pool_threshold_pct,
    )
