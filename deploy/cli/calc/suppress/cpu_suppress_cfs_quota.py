"""``slacktide calc cpu_suppress_cfs_quota``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Whole
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import next_cfs_quota


class Input(Given, frozen=True, kw_only=True):
    """The CPU limit, and the quota in force; -1: unlimited."""

    be_allowed_cpu_milli: Whole
    current_be_cfs_quota_us: Whole
    node_capacity_cpu_milli: Amount


def calculate(given: Input) -> Calculated:
    """Compute the next CFS quota of the best-effort cgroup."""
    step = next_cfs_quota(
        allowed_milli=given.be_allowed_cpu_milli,
        current_us=None if given.current_be_cfs_quota_us == -1 else given.current_be_cfs_quota_us,
        capacity_milli=given.node_capacity_cpu_milli,
    )
    return Calculated(
        output={"be_cfs_quota_us": step.quota_us},
        because=[Because(of="be_cfs_quota_us", bound=step.bound, terms=step.terms)],
    )
