"""Computes the CPU time that containers and pods may save up and use at once: ``cpu.cfs_burst_us``.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, calcStaticCPUBurstVal. The
arithmetic follows the order of the reference, which decides the last digit. Unlike the reference, a burst is at most
the quota, because Linux rejects a larger one (EINVAL). A group without a quota is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.cpu_burst_pod import (
    container_quota_us,
    may_burst,
    pod_burst_config,
    pod_quota_us,
)
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US


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
