"""``slacktide calc cpu_burst_value``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Percent
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.burst.cpu_burst_pod import burst_policy
from slacktide.streams.decisions.burst.cpu_burst_value import cfs_burst


class Config(Given, frozen=True, kw_only=True):
    """A pod's configuration; absent fields have the node's default."""

    policy: str | None = None
    cpu_burst_percent: Percent | None = None


class Input(Given, frozen=True, kw_only=True):
    """A container's limit and its pod's configuration."""

    container_cpu_limit_milli: Amount | None = None
    config: Config | None = None


def calculate(given: Input) -> Calculated:
    """Compute the CFS burst of a container."""
    config = given.config or Config()
    default = CpuBurst()
    burst = cfs_burst(
        given.container_cpu_limit_milli,
        CpuBurst(
            policy=burst_policy(config.policy),
            cpu_burst_pct=default.cpu_burst_pct if config.cpu_burst_percent is None else config.cpu_burst_percent,
        ),
    )
    return Calculated(
        output={"cfs_burst_us": burst.burst_us},
        because=[Because(of="cfs_burst_us", bound=burst.bound, terms=burst.terms)],
    )
