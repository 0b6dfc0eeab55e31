"""Limits how long a container may exceed its CPU limit, by a token bucket.

A token is a percent of the limit for a second. Usage above the limit spends tokens; usage below 60% saves them. While
tokens are left, the quota may be raised. Reading: koordinator a7a1b76b,
pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, burstLimiter, cfsBurstAllowedByLimiter.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst

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
    change = _saved_in_a_second(used_pct) * elapsed_s
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


def _saved_in_a_second(used_pct: int) -> int:
    """Return the tokens saved per second; negative if spent."""
    return 100 - used_pct if used_pct >= SPEND_FROM_PCT or used_pct < SAVE_BELOW_PCT else 0
