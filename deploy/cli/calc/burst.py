"""Cases of the rules of CPU burst."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, Percent, Whole, figure, into, unique
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    ContainerQuota,
    Limiter,
    NodeState,
    SharePoolPod,
    limiter_capacity,
    next_quotas,
    share_pool,
)
from slacktide.streams.decisions.burst.node_burst import burst_policy, cfs_burst


class ValueConfig(Given, frozen=True, kw_only=True):
    """A pod's configuration; absent fields have the node's default."""

    policy: str | None = None
    cpu_burst_pct: Percent | None = None


class CpuBurstValueInput(Given, frozen=True, kw_only=True):
    """A container's limit and its pod's configuration."""

    container_cpu_limit_milli: Amount | None = None
    config: ValueConfig | None = None


def calc_cpu_burst_value(given: CpuBurstValueInput) -> Calculated:
    """Compute the CFS burst of a container."""
    config = given.config or ValueConfig()
    burst = cfs_burst(given.container_cpu_limit_milli, into(CpuBurst, config, policy=burst_policy(config.policy)))
    return figure("cfs_burst_us", burst.burst_us, burst)


class UsedPod(Given, frozen=True, kw_only=True):
    """A pod's class, request and use."""

    qos_class: str | None = None
    cpu_request_milli: Amount | None = None
    cpu_usage_cores: Cores | None = None


class CpuBurstNodeStateInput(Given, frozen=True, kw_only=True):
    """A node, its pods, and the threshold."""

    share_pool_threshold_percent: Percent | None = None
    node_cpu_count: Amount
    node_cpu_usage_cores: Cores | None = None
    pods: list[UsedPod] | None = None


def calc_cpu_burst_node_state(given: CpuBurstNodeStateInput) -> Calculated:
    """Return whether a node has CPU to lend to throttled containers."""
    threshold_pct = given.share_pool_threshold_percent
    pool = share_pool(
        node_cpus=given.node_cpu_count,
        node_used_cores=given.node_cpu_usage_cores,
        pods=[
            SharePoolPod(
                qos_label=pod.qos_class, request_milli=pod.cpu_request_milli or 0, used_cores=pod.cpu_usage_cores
            )
            for pod in given.pods or ()
        ],
        threshold_pct=CpuBurst().share_pool_threshold_pct if threshold_pct is None else threshold_pct,
    )
    return figure("node_state", pool.state, pool)


class QuotaConfig(Given, frozen=True, kw_only=True):
    """A pod's configuration; absent quota fields are not set."""

    policy: str | None = None
    cfs_quota_burst_percent: Percent | None = None
    cfs_quota_burst_period_seconds: Whole | None = None


class GivenContainer(Given, frozen=True, kw_only=True):
    """A container's current state."""

    name: str
    cpu_limit_milli: Amount | None = None
    current_cfs_quota_us: Whole
    running: bool
    throttled_ratio_last: float | None = None
    cpu_usage_cores_last: Cores | None = None
    limiter_tokens_before: Whole | None = None
    """Null: the limiter is new and has no tokens."""
    seconds_since_limiter_update: Amount | None = None


class CpuBurstQuotaInput(Given, frozen=True, kw_only=True):
    """A pod's configuration, its node's state, and the quotas in force; -1: unlimited."""

    config: QuotaConfig | None = None
    node_state: NodeState
    current_pod_cfs_quota_us: Whole
    containers: list[GivenContainer] | None = None


def calc_cpu_burst_quota(given: CpuBurstQuotaInput) -> Calculated:
    """Compute the next CFS quota of throttled containers and their pod."""
    containers = given.containers or []
    unique((one.name for one in containers), "input.containers[{}].name", "{!r} is given twice")
    wanted = given.config or QuotaConfig()
    config = CpuBurst(
        policy=burst_policy(wanted.policy),
        cfs_quota_burst_pct=wanted.cfs_quota_burst_percent,
        cfs_quota_burst_period_s=wanted.cfs_quota_burst_period_seconds,
    )
    pod = next_quotas(
        config=config,
        node_state=given.node_state,
        pod_quota_us=given.current_pod_cfs_quota_us,
        containers=[_container(container, limiter_capacity(config)) for container in containers],
    )
    output: dict[str, object] = {
        "containers": {container.name: _shown(container) for container in pod.containers},
        "pod_cfs_quota_us": pod.quota_us,
    }
    return Calculated(output=output, because=pod.because)


def _container(given: GivenContainer, capacity: int | None) -> BurstContainer:
    tokens = given.limiter_tokens_before
    return BurstContainer(
        name=given.name,
        limit_milli=given.cpu_limit_milli,
        quota_us=given.current_cfs_quota_us,
        running=given.running,
        throttled_ratio=given.throttled_ratio_last,
        used_cores=given.cpu_usage_cores_last,
        limiter=None if capacity is None or tokens is None else Limiter(capacity_tokens=capacity, tokens=tokens),
        elapsed_s=given.seconds_since_limiter_update or 0,
    )


def _shown(container: ContainerQuota) -> dict[str, int]:
    shown = {"cfs_quota_us": container.quota_us}
    if container.limiter is not None:
        shown["limiter_tokens_after"] = container.limiter.tokens
    return shown
