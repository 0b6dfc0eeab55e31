"""``slacktide calc cpu_burst_node_state``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, Percent
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.burst.cpu_burst_node_state import SharePoolPod, share_pool


class UsedPod(Given, frozen=True, kw_only=True):
    """A pod's class, request and use."""

    qos_class: str | None = None
    cpu_request_milli: Amount | None = None
    cpu_usage_cores: Cores | None = None


class Input(Given, frozen=True, kw_only=True):
    """A node, its pods, and the threshold."""

    share_pool_threshold_percent: Percent | None = None
    node_cpu_count: Amount
    node_cpu_usage_cores: Cores | None = None
    pods: list[UsedPod] | None = None


def calculate(given: Input) -> Calculated:
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
    return Calculated(
        output={"node_state": pool.state}, because=[Because(of="node_state", bound=pool.bound, terms=pool.terms)]
    )
