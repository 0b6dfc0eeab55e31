"""Applies ``cpu_burst_value``, the CPU time to save up, to latency-sensitive pods and their containers.

Unlike the reference, a burst is at most the quota, because Linux rejects a larger one (EINVAL). A group without a quota
has nothing to save up and is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_pod import may_burst, pod_burst_config
from slacktide.streams.decisions.burst.cpu_burst_value import pod_cfs_burst
from slacktide.streams.decisions.burst.own_quota import container_quota_us, pod_quota_us
from slacktide.streams.decisions.wanted_setting import WantedSetting

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
