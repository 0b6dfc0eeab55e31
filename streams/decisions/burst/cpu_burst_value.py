"""Computes the CPU time that a container may save up and use at once: ``cpu.cfs_burst_us``.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, calcStaticCPUBurstVal. The
arithmetic follows the order of the reference, which decides the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst
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
