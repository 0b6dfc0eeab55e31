"""Cases of the rules of CPU burst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from slacktide.deploy.cli.calc.case import Calculated, figure, unique
from slacktide.deploy.cli.calc.forms import Amount, By, Cores, Form, Nullable, Percent, Whole
from slacktide.schemas.policy.strategies import BurstPolicy, CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_node_state import NodeState, SharePoolPod, share_pool
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    ContainerQuota,
    Limiter,
    limiter_capacity,
    next_quotas,
)
from slacktide.streams.decisions.burst.cpu_burst_value import burst_policy, cfs_burst

DEFAULTS = CpuBurst()
GivenPolicy = Nullable[Annotated[BurstPolicy, By(lambda text, _: burst_policy(text), str)]]
ValueConfig = Annotated[CpuBurst, Form("policy cpu_burst_pct", policy=GivenPolicy)]
"""A pod's configuration; absent fields have the node's default."""


def calc_cpu_burst_value(
    *, container_cpu_limit_milli: Amount | None = None, config: Nullable[ValueConfig] = DEFAULTS
) -> Calculated:
    """Compute the CFS burst of a container by its limit and its pod's configuration."""
    burst = cfs_burst(container_cpu_limit_milli, config)
    return figure("cfs_burst_us", burst.burst_us, burst)


UsedPod = Annotated[SharePoolPod, Form(request_milli=0)]


def calc_cpu_burst_node_state(
    *,
    share_pool_threshold_percent: Nullable[Percent] = DEFAULTS.share_pool_threshold_pct,
    node_cpu_count: Amount,
    node_cpu_usage_cores: Cores | None = None,
    pods: Nullable[Sequence[UsedPod]] = (),
) -> Calculated:
    """Return whether a node has CPU to lend to throttled containers."""
    pool = share_pool(
        node_cpus=node_cpu_count,
        node_used_cores=node_cpu_usage_cores,
        pods=pods,
        threshold_pct=share_pool_threshold_percent,
    )
    return figure("node_state", pool.state, pool)


NO_QUOTAS = CpuBurst(cfs_quota_burst_pct=None, cfs_quota_burst_period_s=None)
QuotaConfig = Annotated[
    CpuBurst,
    Form(
        "policy cfs_quota_burst_pct cfs_quota_burst_period_s",
        policy=GivenPolicy,
        cfs_quota_burst_pct=None,
        cfs_quota_burst_period_s=None,
    ),
]
"""A pod's configuration; absent quota fields are not set."""
GivenContainer = Annotated[
    BurstContainer,
    Form(
        "name limit_milli quota_us running throttled_ratio used_cores limiter elapsed_s",
        running=...,
        # The capacity is the configuration's. Null: the limiter is new and has no tokens.
        limiter=Nullable[Annotated[Limiter, By(lambda tokens, _: Limiter(capacity_tokens=0, tokens=tokens), Whole)]],
        elapsed_s=Nullable[Amount],
    ),
]


def calc_cpu_burst_quota(
    *,
    config: Nullable[QuotaConfig] = NO_QUOTAS,
    node_state: NodeState,
    current_pod_cfs_quota_us: Whole,
    containers: Nullable[Sequence[GivenContainer]] = (),
) -> Calculated:
    """Compute the next CFS quota of throttled containers and their pod; a quota of -1 is unlimited."""
    unique((one.name for one in containers), "input.containers[{}].name", "{!r} is given twice")
    pod = next_quotas(
        config=config,
        node_state=node_state,
        pod_quota_us=current_pod_cfs_quota_us,
        containers=[_limited(container, limiter_capacity(config)) for container in containers],
    )
    output: dict[str, object] = {
        "containers": {container.name: _shown(container) for container in pod.containers},
        "pod_cfs_quota_us": pod.quota_us,
    }
    return Calculated(output=output, because=pod.because)


def _limited(container: BurstContainer, capacity: int | None) -> BurstContainer:
    limiter = container.limiter if capacity is not None else None
    return replace(container, limiter=limiter and replace(limiter, capacity_tokens=capacity or 0))


def _shown(container: ContainerQuota) -> dict[str, int]:
    shown = {"cfs_quota_us": container.quota_us}
    if container.limiter is not None:
        shown["limiter_tokens_after"] = container.limiter.tokens
    return shown
