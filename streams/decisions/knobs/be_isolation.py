"""Computes CPU weight, CPU quota and memory limit of batch, mid and free pods from their requests and limits.

The kubelet ignores these resources, and so sets no limits. A free pod always has the minimum weight. Reading:
koordinator a7a1b76b, pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go. Unlike the reference, a knob
without a limit in the spec is not written. Under suppression by quota, quotas stay; cgroup v1 needs them cut to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.knob import container_group, pod_group
from slacktide.schemas.knob_table import QUOTA_US_MIN, SHARES_MAX, SHARES_MIN, Knob
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_qos
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US

RULE = "BEIsolation"
Tier = Literal["batch", "free", "mid"]
_FIELDS: Mapping[Tier, tuple[str, str]] = {
    "batch": ("batch_cpu_milli", "batch_mem_bytes"),
    "free": ("free_cpu_milli", "free_mem_bytes"),
    "mid": ("mid_cpu_milli", "mid_mem_bytes"),
}
"""CPU and memory fields of ``Resources``."""


def isolation(pods: Sequence[Pod], colocation: Colocation) -> Iterator[WantedSetting]:
    """Yield the knobs of all pods with batch, mid or free resources, if colocation is enabled."""
    if not colocation.enable:
        return
    for pod in pods:
        tier = _tier(pod)
        if not tier:
            continue
        yield from _group(pod_group(pod.uid), _whole(pod, tier), tier)
        for one in pod.containers:
            if _asks(one.requests, one.limits, tier):
                yield from _group(container_group(pod.uid, one.name), _amounts(one.requests, one.limits, tier), tier)


def _tier(pod: Pod) -> Tier | None:
    """Return the tier of the resources of a BestEffort pod, or None. Batch and free resources require class BE."""
    if pod.kube_qos != "BestEffort" or pod.phase not in LIVE_PHASES:
        return None
    tiers: Sequence[Tier] = ("batch", "free", "mid") if effective_qos(pod.qos_label, pod.kube_qos) == "BE" else ("mid",)
    parts = [*((one.requests, one.limits) for one in pod.containers), (pod.requests, pod.limits)]
    return next((tier for tier in tiers if any(_asks(*part, tier) for part in parts)), None)


def _asks(requests: Resources, limits: Resources, tier: Tier) -> bool:
    """Return whether there are requests or limits of the tier."""
    cpu, mem = _FIELDS[tier]
    return any((getattr(requests, cpu), getattr(requests, mem), getattr(limits, cpu), getattr(limits, mem)))


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The requests and limits of a group; a limit of 0 is none."""

    request_milli: int
    limit_milli: int
    limit_bytes: int


def _amounts(requests: Resources, limits: Resources, tier: Tier) -> _Amounts:
    cpu, mem = _FIELDS[tier]
    return _Amounts(getattr(requests, cpu) or 0, getattr(limits, cpu) or 0, getattr(limits, mem) or 0)


def _whole(pod: Pod, tier: Tier) -> _Amounts:
    """Compute a pod's amounts: its containers or its largest init container, plus the RuntimeClass's overhead.

    Without native requests, the pod's native amounts are overhead. A pod has a limit if all its containers and all init
    containers that have not ended have one.
    """
    total = _amounts(pod.requests, pod.limits, tier)
    parts = [_amounts(one.requests, one.limits, tier) for one in pod.containers] or [total]
    overhead_milli, overhead_bytes = pod.requests.cpu_milli or 0, pod.requests.mem_bytes or 0

    def limit(of: Callable[[_Amounts], int], overhead: int) -> int:
        limited = all(of(part) for part in parts) and not pod.init_unlimited
        return max(sum(map(of, parts)), of(total)) + overhead if limited else 0

    return _Amounts(
        max(sum(part.request_milli for part in parts), total.request_milli) + overhead_milli,
        limit(lambda one: one.limit_milli, overhead_milli),
        limit(lambda one: one.limit_bytes, overhead_bytes),
    )


def _group(group: str, amounts: _Amounts, tier: Tier) -> Iterator[WantedSetting]:
    """Yield the knobs of a group for its requests and limits."""
    request_milli, limit_milli, limit_bytes = amounts.request_milli, amounts.limit_milli, amounts.limit_bytes
    shares = request_milli * 1024 // 1000
    fits = SHARES_MIN if tier == "free" else min(max(shares, SHARES_MIN), SHARES_MAX)
    terms: Terms = {"request_milli": request_milli, "cpu_shares": fits}
    bound = "last" if tier == "free" else "formula" if fits == shares else "kernel_range"
    yield _setting(group, "cpu_shares", fits, bound, terms)
    if limit_milli:
        quota_us = limit_milli * PERIOD_US // 1000
        fits = max(quota_us, QUOTA_US_MIN)
        terms = {"limit_milli": limit_milli, "quota_us": fits}
        yield _setting(group, "cfs_quota_us", fits, "formula" if fits == quota_us else "kernel_range", terms)
    if limit_bytes:
        yield _setting(group, "mem_limit_bytes", limit_bytes, "formula", {"limit_bytes": limit_bytes})


def _setting(group: str, knob: Knob, value: int, bound: str, terms: Terms) -> WantedSetting:
    return WantedSetting(group=group, knob=knob, value=value, rule=RULE, bound=bound, terms=terms)
