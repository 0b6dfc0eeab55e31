"""What a best-effort pod's groups hold by its spec: the weight, the CPU quota and the memory limit of what it bought.

The kubelet knows nothing of batch resources: to it such a pod asked for nothing, and may take all.
Reading: koordinator a7a1b76b, pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go. Different on purpose: a
knob that the spec leaves unlimited is left alone, and quotas stay under CPU suppress by quota, cut to fit meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.knob_table import QUOTA_US_MIN, SHARES_MAX, SHARES_MIN, Knob
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_qos
from slacktide.streams.decisions.cpu_suppress_cfs_quota import PERIOD_US
from slacktide.streams.decisions.wanted_setting import WantedSetting

RULE = "BEIsolation"


def isolation(pods: Sequence[Pod], colocation: Colocation) -> Iterator[WantedSetting]:
    """The knobs of all best-effort pods with batch resources, while colocation is enabled."""
    if not colocation.enable:
        return
    for pod in pods:
        if not _isolated(pod):
            continue
        yield from _group(pod_group(pod.uid), _whole(pod))
        for one in pod.containers:
            if _batch(one.requests, one.limits):
                yield from _group(container_group(pod.uid, one.name), _amounts(one.requests, one.limits))


def _isolated(pod: Pod) -> bool:
    """Native requests are the kubelet's business: a pod that has any is not in the best-effort group."""
    best_effort = pod.kube_qos == "BestEffort" and effective_qos(pod.qos_label, pod.kube_qos) == "BE"
    parts = [*((one.requests, one.limits) for one in pod.containers), (pod.requests, pod.limits)]
    return best_effort and pod.phase in LIVE_PHASES and any(_batch(*part) for part in parts)


def _batch(requests: Resources, limits: Resources) -> bool:
    """Whether it asks for batch resources at all."""
    amounts = (requests.batch_cpu_milli, requests.batch_mem_bytes, limits.batch_cpu_milli, limits.batch_mem_bytes)
    return any(amounts)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What a group holds; a limit of 0 is none."""

    request_milli: int
    limit_milli: int
    limit_bytes: int


def _amounts(requests: Resources, limits: Resources) -> _Amounts:
    return _Amounts(requests.batch_cpu_milli or 0, limits.batch_cpu_milli or 0, limits.batch_mem_bytes or 0)


def _whole(pod: Pod) -> _Amounts:
    """A pod's: what runs together or the largest init container, and its RuntimeClass's overhead.

    Of a pod that has no native requests the native amounts are overhead. A pod has a limit where all have one that run
    in it: its containers, and each init container that has not ended.
    """
    parts = [_amounts(one.requests, one.limits) for one in pod.containers] or [_amounts(pod.requests, pod.limits)]
    total = _amounts(pod.requests, pod.limits)
    overhead_milli, overhead_bytes = pod.requests.cpu_milli or 0, pod.requests.mem_bytes or 0

    def limit(of: Callable[[_Amounts], int], overhead: int) -> int:
        limited = all(of(part) for part in parts) and not pod.init_unlimited
        return max(sum(map(of, parts)), of(total)) + overhead if limited else 0

    return _Amounts(
        max(sum(part.request_milli for part in parts), total.request_milli) + overhead_milli,
        limit(lambda one: one.limit_milli, overhead_milli),
        limit(lambda one: one.limit_bytes, overhead_bytes),
    )


def _group(group: str, amounts: _Amounts) -> Iterator[WantedSetting]:
    """What a group holds by the requests and limits of what is in it."""
    request_milli, limit_milli, limit_bytes = amounts.request_milli, amounts.limit_milli, amounts.limit_bytes
    shares = request_milli * 1024 // 1000
    fits = min(max(shares, SHARES_MIN), SHARES_MAX)
    terms: Terms = {"request_milli": request_milli, "cpu_shares": fits}
    yield _setting(group, "cpu_shares", fits, "formula" if fits == shares else "kernel_range", terms)
    if limit_milli:
        quota_us = limit_milli * PERIOD_US // 1000
        fits = max(quota_us, QUOTA_US_MIN)
        terms = {"limit_milli": limit_milli, "quota_us": fits}
        yield _setting(group, "cfs_quota_us", fits, "formula" if fits == quota_us else "kernel_range", terms)
    if limit_bytes:
        yield _setting(group, "mem_limit_bytes", limit_bytes, "formula", {"limit_bytes": limit_bytes})


def _setting(group: str, knob: Knob, value: int, bound: str, terms: Terms) -> WantedSetting:
    return WantedSetting(group=group, knob=knob, value=value, rule=RULE, bound=bound, terms=terms)
