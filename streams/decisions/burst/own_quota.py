"""The CPU quota that the kubelet gives for the limits in a pod's spec, per 100 ms."""

from __future__ import annotations

from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US


def container_quota_us(limit_milli: int | None) -> int | None:
    """Of a container; None: it has no limit, and so no quota."""
    return max(QUOTA_US_MIN, limit_milli * PERIOD_US // 1000) if limit_milli else None


def pod_quota_us(pod: Pod) -> int | None:
    """Of a pod; None: it has a container without limit and none as a whole, and so no quota."""
    limited = pod.cpu_limited_whole or all(one.limits.cpu_milli for one in pod.containers)
    return container_quota_us(pod.limits.cpu_milli) if limited else None
