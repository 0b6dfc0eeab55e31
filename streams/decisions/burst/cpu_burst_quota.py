"""Computes the next CFS quotas of a pod and its containers, if its node has CPU to lend to throttled ones.

A throttled container may exceed its limit. A token bucket limits how long. A token is a percent of the limit for a
second. Usage above the limit spends tokens; usage below 60% saves them. While tokens are left, the quota may be raised.
Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, getNodeStateForBurst,
burstLimiter, cfsBurstAllowedByLimiter, applyCFSQuotaBurst, genOperationByContainer, changeOperationByNode.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import Literal

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US

NodeState = Literal["idle", "cooling", "overload", "unknown"]
COOLING = 0.9
"""Share of the threshold from which quotas are no longer raised, but not yet cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePoolPod:
    """A pod's input to the share pool."""

    qos_label: str | None
    """The label's text; an unknown class counts as none."""
    request_milli: int
    used_cores: float | None
    """None: no metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePool:
    """The node's state by its share pool: the CPUs that no pod has exclusively."""

    state: NodeState
    bound: str
    """``formula``, ``no_metric``, or ``no_share_pool`` (no CPU is left, which counts as fully used)."""
    terms: Terms


def share_pool(
    *, node_cpus: int, node_used_cores: float | None, pods: Iterable[SharePoolPod], threshold_pct: int
) -> SharePool:
    """Compare the usage of the share pool with ``threshold_pct``, from which the node is overloaded.

    Pool = CPUs - requests of LSE and LSR pods. Used = usage of the node - usage of LSE, LSR and BE pods. The pool's
    usage includes the system's. Without a metric of the node, the state is unknown.
    """
    if node_used_cores is None:
        return SharePool(state="unknown", bound="no_metric", terms={})
    owned_milli, apart = 0, []
    for pod in pods:
        qos = raw_qos(pod.qos_label)
        owned_milli += pod.request_milli if qos in {"LSE", "LSR"} else 0
        if qos in {"LSE", "LSR", "BE"} and pod.used_cores is not None:
            apart.append(pod.used_cores)
    pool_cores = node_cpus - owned_milli / 1000
    pool_used_cores = node_used_cores - fsum(apart)
    used_ratio = pool_used_cores / pool_cores if pool_cores > 0 else 1.0
    threshold_ratio = threshold_pct / 100
    cooling_ratio = threshold_ratio * COOLING
    terms: Terms = {
        "node_cores": node_cpus,
        "owned_milli": owned_milli,
        "pool_cores": pool_cores,
        "node_used_cores": node_used_cores,
        "pool_used_cores": pool_used_cores,
        "cooling_ratio": cooling_ratio,
        "threshold_ratio": threshold_ratio,
        "used_ratio": used_ratio,
    }
    state: NodeState = "cooling" if used_ratio >= cooling_ratio else "idle"
    return SharePool(
        state="overload" if used_ratio >= threshold_ratio else state,
        bound="formula" if pool_cores > 0 else "no_share_pool",
        terms=terms,
    )


SPEND_FROM_PCT = 100
SAVE_BELOW_PCT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiter:
    """A container's bucket. The caller keeps it from one decision to the next."""

    capacity_tokens: int
    tokens: int
    """At least minus the capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """Whether the quota may be raised, and the bucket after the decision."""

    allowed: bool
    limiter: Limiter | None
    """None: the configuration has no limiter, or an invalid one."""
    terms: Terms


def limiter_capacity(config: CpuBurst) -> int | None:
    """Return the bucket's capacity: the whole period at the ceiling. None without a valid period and ceiling."""
    period_s, ceiling_pct = config.cfs_quota_burst_period_s, config.cfs_quota_burst_pct
    if period_s is None or period_s < 0 or ceiling_pct is None or ceiling_pct < 100:
        return None
    return period_s * (ceiling_pct - 100)


def start_tokens(capacity_tokens: int, draw: float) -> int:
    """Return a new bucket's tokens, below half its capacity. A random ``draw`` in [0, 1) desynchronizes bursts."""
    return int(capacity_tokens * (draw / 2))


def limit(config: CpuBurst, before: Limiter | None, *, start: int, used_pct: int, elapsed_s: int) -> Limited:
    """Spend or save tokens for the time since the last decision. Return whether any are left.

    Without a period, raises are always allowed; with a period and a ceiling below the limit, never. If ``before`` is
    None or has another capacity, a new bucket gets ``start`` tokens. ``used_pct`` is in percent of the limit.
    """
    if config.cfs_quota_burst_period_s is None or config.cfs_quota_burst_period_s < 0:
        return Limited(allowed=True, limiter=None, terms={})
    capacity = limiter_capacity(config)
    if capacity is None:
        return Limited(allowed=False, limiter=None, terms={})
    if before is None or before.capacity_tokens != capacity:
        before = Limiter(capacity_tokens=capacity, tokens=start)
        elapsed_s = 0
    saves = 100 - used_pct if used_pct >= SPEND_FROM_PCT or used_pct < SAVE_BELOW_PCT else 0
    change = saves * elapsed_s
    tokens = max(-capacity, min(capacity, before.tokens + change))
    terms: Terms = {
        "used_pct": used_pct,
        "elapsed_s": elapsed_s,
        "capacity_tokens": capacity,
        "before_tokens": before.tokens,
        "change_tokens": change,
        "after_tokens": tokens,
    }
    return Limited(allowed=tokens > 0, limiter=Limiter(capacity_tokens=capacity, tokens=tokens), terms=terms)


FACTORS = {"scale_up": 1.2, "scale_down": 0.8}
Operation = Literal["scale_up", "scale_down", "remain", "reset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstContainer:
    """The current state of a container."""

    name: str
    limit_milli: int | None
    """None or 0: no CPU limit."""
    quota_us: int
    """Current quota per 100 ms period; -1: unlimited."""
    running: bool = True
    throttled_ratio: float | None = None
    """Share of throttled periods, as last measured; None: no metric."""
    used_cores: float | None = None
    """None: no metric, which counts as the limit."""
    limiter: Limiter | None = None
    """The limiter after the last decision; None: no decision yet."""
    start_tokens: int = 0
    """The tokens of a new limiter, see ``start_tokens``."""
    elapsed_s: int = 0
    """Whole seconds since the limiter's last decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerQuota:
    """The quota to apply to a container."""

    name: str
    quota_us: int
    limiter: Limiter | None
    because: Because
    """``bound``: the operation, ``base`` or ``ceiling`` if one limits it, ``not_running`` or ``no_limit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodQuota:
    """The quotas to apply to a pod and its containers, in the given order."""

    quota_us: int
    containers: tuple[ContainerQuota, ...]
    because: tuple[Because, ...]
    """The containers' reasons, then the pod's: ``formula``, or ``unlimited`` (no quota to change)."""


def next_quotas(
    *, config: CpuBurst, node_state: NodeState, pod_quota_us: int, containers: Iterable[BurstContainer]
) -> PodQuota:
    """Move each container's quota one step between its limit (base) and its ceiling. The pod's quota follows.

    A throttled container's quota rises by 20%, but not while the node is cooling or unknown. It is cut by 20% if its
    limiter has no tokens left or the node is overloaded. A policy without quota burst resets quotas to the limit. A
    ``pod_quota_us`` of 0 or below is unlimited.
    """
    results = []
    quota_us = pod_quota_us
    for container in containers:
        result = _container(container, config, node_state)
        results.append(result)
        if quota_us > 0:
            quota_us += result.quota_us - container.quota_us
    terms: Terms = {"current_us": pod_quota_us, "change_us": quota_us - pod_quota_us, "quota_us": quota_us}
    bound = "formula" if pod_quota_us > 0 else "unlimited"
    pod = Because(of="pod_cfs_quota_us", bound=bound, terms=terms)
    return PodQuota(
        quota_us=quota_us, containers=tuple(results), because=(*(result.because for result in results), pod)
    )


def lends(config: CpuBurst) -> bool:
    """Return whether the configuration has quota burst."""
    return config.policy in {"auto", "cfsQuotaBurstOnly"}


def used_pct(used_cores: float | None, limit_milli: int) -> int:
    """Return the usage in percent of the limit; 100 if unknown."""
    return 100 if used_cores is None else int(used_cores / (limit_milli / 1000) * 100)


def _container(container: BurstContainer, config: CpuBurst, node_state: NodeState) -> ContainerQuota:
    if not container.running:
        return _stays(container, "not_running")
    if not container.limit_milli:
        return _stays(container, "no_limit")
    base_us = container.limit_milli * PERIOD_US // 1000
    ceiling_pct = config.cfs_quota_burst_pct
    ceiling_us = (
        base_us if ceiling_pct is None or ceiling_pct <= 100 else int(float(base_us) * float(ceiling_pct) / 100)
    )
    limited = limit(
        config,
        container.limiter,
        start=container.start_tokens,
        used_pct=used_pct(container.used_cores, container.limit_milli),
        elapsed_s=container.elapsed_s,
    )
    operation = _operation(config, node_state, allowed=limited.allowed, throttled=(container.throttled_ratio or 0) > 0)
    scaled_us = base_us if operation == "reset" else container.quota_us
    if operation in FACTORS:
        scaled_us = int(container.quota_us * FACTORS[operation])
    quota_us = max(base_us, min(scaled_us, ceiling_us))
    terms: Terms = {
        "limit_milli": container.limit_milli,
        "base_us": base_us,
        "ceiling_us": ceiling_us,
        **limited.terms,
        "current_us": container.quota_us,
        "scaled_us": scaled_us,
        "quota_us": quota_us,
    }
    bound = operation if quota_us == scaled_us else "base" if quota_us == base_us else "ceiling"
    return ContainerQuota(
        name=container.name, quota_us=quota_us, limiter=limited.limiter, because=_because(container, bound, terms)
    )


def _operation(config: CpuBurst, node_state: NodeState, *, allowed: bool, throttled: bool) -> Operation:
    """Return the operation that the container requires and its node permits."""
    if not lends(config):
        return "reset"
    if not allowed or node_state == "overload":
        return "scale_down"
    return "scale_up" if throttled and node_state == "idle" else "remain"


def _stays(container: BurstContainer, why: str) -> ContainerQuota:
    because = _because(container, why, {"quota_us": container.quota_us})
    return ContainerQuota(name=container.name, quota_us=container.quota_us, limiter=container.limiter, because=because)


def _because(container: BurstContainer, bound: str, terms: Terms) -> Because:
    return Because(of=f"containers/{container.name}/cfs_quota_us", bound=bound, terms=terms)
