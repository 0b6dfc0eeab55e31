"""Selects pods that burst; their configuration, which an annotation may override; and the quotas of their limits.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, genPodBurstConfig;
pkg/util/pod.go, IsPodCPUBurstable, IsPodInactive; apis/slo/v1alpha1/pod.go.
"""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.policy.strategies import BurstPolicy, CpuBurst
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US

ANNOTATION = "koordinator.sh/cpuBurst"
Number = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""Within 32 bits, so that a limiter's capacity, a product of two, fits in 64 bits."""
_POLICIES: tuple[BurstPolicy, ...] = get_args(BurstPolicy)


class _PodBurst(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation. A null and an empty policy count as absent, as in the reference."""

    policy: str | None = None
    cpu_burst_percent: Number | None = None
    cfs_quota_burst_percent: Number | None = None
    cfs_quota_burst_period_seconds: Number | None = None


_decoder = msgspec.json.Decoder(_PodBurst)


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
        decoded = _decoder.decode(annotation)
    # Half a surrogate pair cannot be encoded. Deep nesting exceeds the recursion limit.
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
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
