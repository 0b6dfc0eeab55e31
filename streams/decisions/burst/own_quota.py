"""Computes the CPU quota that the kubelet sets for a pod's limits, per 100 ms."""

from __future__ import annotations

from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US


def container_quota_us(limit_milli: int | None) -> int | None:
    """Return a container's quota; None without a limit."""
    return max(QUOTA_US_MIN, limit_milli * PERIOD_US // 1000) if limit_milli else None


def pod_quota_us(pod: Pod) -> int | None:
    """Return a pod's quota. None if a container has no limit and the pod as a whole has none."""
    limited = pod.cpu_limited_whole or all(one.limits.cpu_milli for one in pod.containers)
    return container_quota_us(pod.limits.cpu_milli) if limited else None
