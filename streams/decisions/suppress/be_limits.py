"""What best-effort pods are held to, compared: which limits give more, and the part of a change that is a cut."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US


def looser(one: Limits, other: Limits) -> bool:
    """Whether ``one`` gives best-effort pods more than ``other``: CPU time, or a CPU that the other lacks."""
    return quota_rate(one) > quota_rate(other) or not _within(one.be_cpuset, other.be_cpuset)


def tighter(current: Limits, wanted: Limits, free: Collection[int]) -> Limits:
    """The cuts on the way from ``current`` to ``wanted``, without the raises.

    CPUs are only taken: those that are not free, then those too many, last the wanted ones.
    """
    quota = current if quota_rate(current) <= quota_rate(wanted) else wanted
    return Limits(
        be_cfs_quota_us=quota.be_cfs_quota_us,
        be_cfs_period_us=quota.be_cfs_period_us,
        be_cpuset=_cut(current.be_cpuset, wanted.be_cpuset, free),
    )


def capped(limits: Limits, quota_us: int) -> Limits:
    """The limits with no more CPU time than this per standard period."""
    if quota_rate(limits) * PERIOD_US <= quota_us:
        return limits
    return Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=PERIOD_US, be_cpuset=limits.be_cpuset)


def released(current: Sequence[int] | None, free: Collection[int], step_cpus: int) -> list[int] | None:
    """One step from the CPU set in force to all that are free; it stays where none is free, or none is known."""
    if current is None or not free:
        return None if current is None else list(current)
    kept = [cpu for cpu in current if cpu in free]
    more = sorted(set(free) - set(kept))
    return sorted([*kept, *more[:step_cpus]])


def measured(limits: Limits | None) -> Limits | None:
    """The limits, where a record's can be: of no period, or of less than nothing, none are known."""
    if limits is None or limits.be_cfs_period_us <= 0 or (limits.be_cfs_quota_us or 0) < 0:
        return None
    return limits


def quota_rate(limits: Limits) -> float:
    """CPUs' worth of time that the quota gives; unlimited is infinite."""
    quota_us = limits.be_cfs_quota_us
    return float("inf") if quota_us is None else quota_us / limits.be_cfs_period_us


def normal_us(limits: Limits) -> int | None:
    """The quota per standard period, whatever period the kernel holds."""
    if limits.be_cfs_quota_us is None:
        return None
    return limits.be_cfs_quota_us * PERIOD_US // limits.be_cfs_period_us


def _within(one: Collection[int] | None, other: Collection[int] | None) -> bool:
    """Whether ``other`` has all CPUs of ``one``; a set that is not known may be all CPUs."""
    return other is None or (one is not None and set(one) <= set(other))


def _cut(current: list[int] | None, wanted: list[int] | None, free: Collection[int]) -> list[int] | None:
    if current is None or wanted is None:
        return current
    stay = [cpu for cpu in current if cpu in free] or current
    return sorted(sorted(stay, key=lambda cpu: cpu not in wanted)[: len(wanted)])
