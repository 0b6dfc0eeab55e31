"""What a best-effort pod's groups hold by its spec: the weight, the CPU quota and the memory limit of what it bought.

The kubelet knows nothing of batch resources: to it such a pod asked for nothing, and may take all.
Reading: koordinator a7a1b76b, pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go. Different on purpose: a
knob that the spec leaves unlimited is left alone, and quotas stay under CPU suppress by quota, cut to fit meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_qos
from slacktide.schemas.sample import Knob
from slacktide.streams.decisions.cpu_suppress_cfs_quota import PERIOD_US
from slacktide.streams.decisions.own_quota import QUOTA_US_MIN
from slacktide.streams.decisions.wanted_setting import WantedSetting

RULE = "BEIsolation"
SHARES_MIN = 2
SHARES_MAX = 262_144
"""What the kernel takes."""


def isolation(pods: Sequence[Pod], colocation: Colocation) -> Iterator[WantedSetting]:
    """The knobs of all best-effort pods with batch resources, while colocation is enabled."""
    if not colocation.enable:
        return
    for pod in pods:
        if not _isolated(pod):
            continue
        parts = [(one.requests, one.limits) for one in pod.containers] or [(pod.requests, pod.limits)]
        yield from _group(pod_group(pod.uid), parts)
        for one in pod.containers:
            if _batch(one.requests, one.limits):
                yield from _group(container_group(pod.uid, one.name), [(one.requests, one.limits)])


def _isolated(pod: Pod) -> bool:
    """Native requests are the kubelet's business: a pod that has any is not in the best-effort group."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    parts = [*((one.requests, one.limits) for one in pod.containers), (pod.requests, pod.limits)]
    return best_effort and pod.phase in LIVE_PHASES and any(_batch(*part) for part in parts)


def _batch(requests: Resources, limits: Resources) -> bool:
    """Whether it asks for batch resources at all."""
    amounts = (requests.batch_cpu_milli, requests.batch_mem_bytes, limits.batch_cpu_milli, limits.batch_mem_bytes)
    return any(amounts)


def _group(group: str, parts: Sequence[tuple[Resources, Resources]]) -> Iterator[WantedSetting]:
    """What a group holds by the requests and limits of what is in it."""
    request_milli = sum(requests.batch_cpu_milli or 0 for requests, _ in parts)
    shares = request_milli * 1024 // 1000
    fits = min(max(shares, SHARES_MIN), SHARES_MAX)
    terms: Terms = {"request_milli": request_milli, "cpu_shares": fits}
    yield _setting(group, "cpu_shares", fits, "formula" if fits == shares else "kernel_range", terms)
    limit_milli = _sum(limits.batch_cpu_milli for _, limits in parts)
    if limit_milli:
        quota_us = limit_milli * PERIOD_US // 1000
        fits = max(quota_us, QUOTA_US_MIN)
        terms = {"limit_milli": limit_milli, "quota_us": fits}
        yield _setting(group, "cfs_quota_us", fits, "formula" if fits == quota_us else "kernel_range", terms)
    limit_bytes = _sum(limits.batch_mem_bytes for _, limits in parts)
    if limit_bytes:
        yield _setting(group, "mem_limit_bytes", limit_bytes, "formula", {"limit_bytes": limit_bytes})


def _sum(limits: Iterable[int | None]) -> int:
    """0: one of them has no limit, so that all together have none."""
    each = list(limits)
    return sum(one or 0 for one in each) if all(each) else 0


def _setting(group: str, knob: Knob, value: int, bound: str, terms: Terms) -> WantedSetting:
    return WantedSetting(group=group, knob=knob, value=value, rule=RULE, bound=bound, terms=terms)
