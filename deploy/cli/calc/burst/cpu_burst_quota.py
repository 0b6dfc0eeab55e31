"""``slacktide calc cpu_burst_quota``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, Percent, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_node_state import NodeState
from slacktide.streams.decisions.burst.cpu_burst_pod import burst_policy
from slacktide.streams.decisions.burst.cpu_burst_quota import (
    BurstContainer,
    ContainerQuota,
    Limiter,
    limiter_capacity,
    next_quotas,
)


class Config(Given, frozen=True, kw_only=True):
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


class Input(Given, frozen=True, kw_only=True):
    """A pod's configuration, its node's state, and the quotas in force; -1: unlimited."""

    config: Config | None = None
    node_state: NodeState
    current_pod_cfs_quota_us: Whole
    containers: list[GivenContainer] | None = None


def calculate(given: Input) -> Calculated:
    """Compute the next CFS quota of throttled containers and their pod."""
    containers = _distinct(given.containers or [])
    config = _config(given.config or Config())
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


def _distinct(containers: list[GivenContainer]) -> list[GivenContainer]:
    seen: set[str] = set()
    for at, container in enumerate(containers):
        if container.name in seen:
            raise CaseError(f"input.containers[{at}].name", f"{container.name!r} is given twice")
        seen.add(container.name)
    return containers


def _config(config: Config) -> CpuBurst:
    return CpuBurst(
        policy=burst_policy(config.policy),
        cfs_quota_burst_pct=config.cfs_quota_burst_percent,
        cfs_quota_burst_period_s=config.cfs_quota_burst_period_seconds,
    )


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
