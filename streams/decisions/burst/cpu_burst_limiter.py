"""How long a container may stay beyond its limit: a token bucket.

Tokens are percents of the limit times seconds: use beyond the limit spends them, use below 60% saves
some up. While there are any, the quota may be raised.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpuburst/cpu_burst.go, burstLimiter,
cfsBurstAllowedByLimiter.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import CpuBurst

SPEND_FROM_PCT = 100
SAVE_BELOW_PCT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiter:
    """A container's bucket. Its state is the caller's to keep from one decision to the next."""

    capacity_tokens: int
    tokens: int
    """Negative: in debt, down to minus the capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """Whether the quota may be raised, and the bucket after that."""

    allowed: bool
    limiter: Limiter | None
    """None: the configuration has no limiter, or none that can work."""
    terms: Terms


def limiter_capacity(config: CpuBurst) -> int | None:
    """The bucket's size: the whole period at the ceiling; None where the configuration has no bucket."""
    period_s, ceiling_pct = config.cfs_quota_burst_period_s, config.cfs_quota_burst_pct
    if period_s is None or period_s < 0 or ceiling_pct is None or ceiling_pct < 100:
        return None
    return period_s * (ceiling_pct - 100)


def start_tokens(capacity_tokens: int, draw: float) -> int:
    """What a new bucket holds: anything below half its size, so that containers do not all burst in step.

    Args:
        capacity_tokens: the bucket's size.
        draw: a random number in [0, 1).

    """
    return int(capacity_tokens * (draw / 2))


def limit(config: CpuBurst, before: Limiter | None, *, start: int, used_pct: int, elapsed_s: int) -> Limited:
    """Spend or save tokens for the time since the last decision, and return whether any are left.

    Args:
        config: without a period everything is allowed; with one, but a ceiling below the limit, nothing.
        before: the bucket after the last decision; None: there was none.
        start: the tokens of a new bucket, which one of another size is, too.
        used_pct: what the container used, in percent of its limit.
        elapsed_s: whole seconds since the last decision.

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
    """Negative: spent."""
    return 100 - used_pct if used_pct >= SPEND_FROM_PCT or used_pct < SAVE_BELOW_PCT else 0
