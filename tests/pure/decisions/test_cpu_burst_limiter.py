"""How long a container may stay beyond its limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_quota import Limited, Limiter, limit, limiter_capacity, start_tokens
from testbed.vectors import each_row

MINUTE = CpuBurst(policy="auto", cfs_quota_burst_pct=300, cfs_quota_burst_period_s=60)
CAPACITY = 60 * 200


def config(period_s: int | None, ceiling_pct: int | None) -> CpuBurst:
    return CpuBurst(cfs_quota_burst_pct=ceiling_pct, cfs_quota_burst_period_s=period_s)


@each_row("period_s", "ceiling_pct", "allowed")
def test_without_a_bucket_all_or_nothing_is_allowed(
    period_s: int | None, ceiling_pct: int | None, *, allowed: bool
) -> None:
    before, given_config = Limiter(capacity_tokens=CAPACITY, tokens=500), config(period_s, ceiling_pct)
    result = limit(given_config, before, start=1, used_pct=80, elapsed_s=1)

    assert result == Limited(allowed=allowed, limiter=None, terms={})
    assert limiter_capacity(given_config) is None


@pytest.mark.parametrize(
    ("period_s", "ceiling_pct", "capacity"), [(60, 300, 12_000), (0, 300, 0), (60, 100, 0), (1, 101, 1)]
)
def test_the_bucket_holds_the_period_at_the_ceiling(period_s: int, ceiling_pct: int, capacity: int) -> None:
    assert limiter_capacity(config(period_s, ceiling_pct)) == capacity


@pytest.mark.parametrize(
    "size", [None, CAPACITY - 1, CAPACITY + 1], ids=["none before", "a smaller one", "a larger one"]
)
def test_a_new_bucket_starts_with_what_it_is_given_whatever_time_has_passed(size: int | None) -> None:
    before = None if size is None else Limiter(capacity_tokens=size, tokens=9)
    result = limit(MINUTE, before, start=700, used_pct=0, elapsed_s=1_000)

    assert (result.limiter, result.allowed) == (Limiter(capacity_tokens=CAPACITY, tokens=700), True)


@given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_new_bucket_is_less_than_half_full(capacity: int, draw: float) -> None:
    tokens = start_tokens(capacity, draw)

    assert 0 <= tokens < max(capacity / 2, 1)


def test_what_is_drawn_is_half_of_the_draw() -> None:
    assert [start_tokens(1_000, draw) for draw in (0.0, 0.5, 0.999)] == [0, 250, 499]


@given(
    st.integers(0, 3_600),
    st.integers(100, 1_000),
    st.none() | st.integers(-(10**7), 10**7),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 600)), max_size=5),
)
def test_tokens_stay_within_the_capacity_either_way(
    period_s: int, ceiling_pct: int, tokens: int | None, seconds: list[tuple[int, int]]
) -> None:
    given_config = config(period_s, ceiling_pct)
    capacity = period_s * (ceiling_pct - 100)
    limiter = None if tokens is None else Limiter(capacity_tokens=capacity, tokens=tokens)
    for used_pct, elapsed_s in seconds:
        result = limit(given_config, limiter, start=0, used_pct=used_pct, elapsed_s=elapsed_s)
        limiter = result.limiter
        assert limiter is not None
        assert -capacity <= limiter.tokens <= capacity
        assert result.allowed is (limiter.tokens > 0)
        assert list(result.terms)[-1] == "after_tokens"
        assert result.terms["after_tokens"] == limiter.tokens


@given(st.integers(-CAPACITY, CAPACITY), st.integers(0, 400), st.integers(0, 400), st.integers(0, 60))
def test_who_uses_more_never_has_more_tokens_left(tokens: int, used_pct: int, more_pct: int, elapsed_s: int) -> None:
    before = Limiter(capacity_tokens=CAPACITY, tokens=tokens)
    calm, busy = (
        limit(MINUTE, before, start=0, used_pct=pct, elapsed_s=elapsed_s) for pct in (used_pct, used_pct + more_pct)
    )

    assert busy.limiter.tokens <= calm.limiter.tokens
