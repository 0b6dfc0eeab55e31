"""Selects pods that burst, and computes the CPU time that they may save up and use at once: ``cpu.cfs_burst_us``.

An annotation may override the node's configuration. Reading: koordinator a7a1b76b,
pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, genPodBurstConfig, calcStaticCPUBurstVal; pkg/util/pod.go,
IsPodCPUBurstable, IsPodInactive; apis/slo/v1alpha1/pod.go. The arithmetic follows the order of the reference, which
decides the last digit. Unlike the reference, a burst is at most the quota, because Linux rejects a larger one (EINVAL).
A group without a quota is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.kubernetes_pod import PodBurst
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import BurstPolicy, CpuBurst
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US

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


RULE = "CPUBurst"


def cpu_burst(pods: Sequence[Pod], config: CpuBurst) -> Iterator[WantedSetting]:
    """Yield the bursts of all pods that may burst, by the node's strategy and their annotation."""
    for pod in pods:
        if not may_burst(pod):
            continue
        burst = pod_cfs_burst((one.limits.cpu_milli for one in pod.containers), pod_burst_config(config, pod.cpu_burst))
        for one, value in zip(pod.containers, burst.containers, strict=True):
            quota_us = container_quota_us(one.limits.cpu_milli)
            if quota_us is not None and value.burst_us:
                yield _setting(container_group(pod.uid, one.name), value.burst_us, quota_us, value.terms)
        quota_us = pod_quota_us(pod)
        if quota_us is not None and burst.burst_us:
            yield _setting(pod_group(pod.uid), burst.burst_us, quota_us, {"burst_us": burst.burst_us})


def _setting(group: str, burst_us: int, quota_us: int, terms: Terms) -> WantedSetting:
    fits_us = min(burst_us, quota_us)
    return WantedSetting(
        group=group,
        knob="cfs_burst_us",
        value=fits_us,
        rule=RULE,
        bound="formula" if fits_us == burst_us else "quota",
        terms=terms | {"quota_us": quota_us},
    )
