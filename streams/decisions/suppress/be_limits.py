"""Compares the limits of best-effort pods, and extracts the reductions from a change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US


def looser(one: Limits, other: Limits) -> bool:
    """Return whether ``one`` allows more CPU time than ``other``, or a CPU that ``other`` lacks."""
    return quota_rate(one) > quota_rate(other) or not _within(one.be_cpuset, other.be_cpuset)


def tighter(current: Limits, wanted: Limits, free: Collection[int]) -> Limits:
    """Return only the reductions to ``wanted``. They remove CPUs that are not free first, and wanted CPUs last."""
    quota = current if quota_rate(current) <= quota_rate(wanted) else wanted
    return Limits(
        be_cfs_quota_us=quota.be_cfs_quota_us,
        be_cfs_period_us=quota.be_cfs_period_us,
        be_cpuset=_cut(current.be_cpuset, wanted.be_cpuset, free),
    )


def capped(limits: Limits, quota_us: int) -> Limits:
    """Cap the CPU time at ``quota_us`` per standard period."""
    if quota_rate(limits) * PERIOD_US <= quota_us:
        return limits
    return Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=PERIOD_US, be_cpuset=limits.be_cpuset)


def released(current: Sequence[int] | None, free: Collection[int], step_cpus: int) -> list[int] | None:
    """Return the CPU set one step closer to all free CPUs. It is unchanged if no CPU is free or no set is known."""
    if current is None or not free:
        return None if current is None else list(current)
    kept = [cpu for cpu in current if cpu in free]
    more = sorted(set(free) - set(kept))
    return sorted([*kept, *more[:step_cpus]])


def measured(limits: Limits | None) -> Limits | None:
    """Return the limits, or None if the period is not positive or the quota is negative."""
    if limits is None or limits.be_cfs_period_us <= 0 or (limits.be_cfs_quota_us or 0) < 0:
        return None
    return limits


def quota_rate(limits: Limits) -> float:
    """Return the quota in CPUs; infinity if unlimited."""
    quota_us = limits.be_cfs_quota_us
    return float("inf") if quota_us is None else quota_us / limits.be_cfs_period_us


def normal_us(limits: Limits) -> int | None:
    """Convert the quota to the standard period; None if unlimited."""
    if limits.be_cfs_quota_us is None:
        return None
    return limits.be_cfs_quota_us * PERIOD_US // limits.be_cfs_period_us


def _within(one: Collection[int] | None, other: Collection[int] | None) -> bool:
    """Return whether ``other`` has all CPUs of ``one``. An unknown set may be all CPUs."""
    return other is None or (one is not None and set(one) <= set(other))


def _cut(current: list[int] | None, wanted: list[int] | None, free: Collection[int]) -> list[int] | None:
    if current is None or wanted is None:
        return current
    stay = [cpu for cpu in current if cpu in free] or current
    return sorted(sorted(stay, key=lambda cpu: cpu not in wanted)[: len(wanted)])
