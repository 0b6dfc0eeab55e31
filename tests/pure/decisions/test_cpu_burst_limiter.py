"""How long a container may stay beyond its limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_quota import Limited, Limiter, limit, limiter_capacity, start_tokens

MINUTE = CpuBurst(policy="auto", cfs_quota_burst_pct=300, cfs_quota_burst_period_s=60)
CAPACITY = 60 * 200


def limited(tokens: int | None, used_pct: int = 80, elapsed_s: int = 10, *, start: int = 0, **more) -> Limited:
    before = None if tokens is None else Limiter(capacity_tokens=CAPACITY, tokens=tokens)
    return limit(MINUTE, before, **{"start": start, "used_pct": used_pct, "elapsed_s": elapsed_s} | more)


def config(period_s: int | None, ceiling_pct: int | None) -> CpuBurst:
    return CpuBurst(cfs_quota_burst_pct=ceiling_pct, cfs_quota_burst_period_s=period_s)


@pytest.mark.parametrize(
    ("tokens", "used_pct", "elapsed_s", "after"),
    [
        pytest.param(500, 150, 10, 0, id="half the limit again, ten seconds long"),
        pytest.param(500, 101, 10, 490, id="a little beyond the limit"),
        pytest.param(500, 100, 10, 500, id="at the limit nothing is spent"),
        pytest.param(500, 99, 10, 500, id="nor saved just below"),
        pytest.param(500, 60, 10, 500, id="nor at 60%"),
        pytest.param(500, 59, 10, 910, id="below that the distance to the limit is saved"),
        pytest.param(500, 0, 10, 1_500, id="most by idling"),
        pytest.param(500, 0, 0, 500, id="in no time nothing"),
        pytest.param(11_900, 0, 10, CAPACITY, id="no more than the bucket holds"),
        pytest.param(-11_900, 300, 10, -CAPACITY, id="and no more debt"),
        pytest.param(99_999, 80, 10, CAPACITY, id="what is too much overflows"),
    ],
)
def test_tokens(tokens: int, used_pct: int, elapsed_s: int, after: int) -> None:
    limiter = limited(tokens, used_pct, elapsed_s).limiter

    assert limiter == Limiter(capacity_tokens=CAPACITY, tokens=after)


@pytest.mark.parametrize(("tokens", "allowed"), [(1, True), (0, False), (-1, False)])
def test_a_raise_is_allowed_while_there_are_tokens(tokens: int, *, allowed: bool) -> None:
    assert limited(tokens).allowed is allowed


@pytest.mark.parametrize(
    ("given_config", "allowed"),
    [
        pytest.param(config(None, 300), True, id="no period: no limiter"),
        pytest.param(config(-1, 300), True, id="minus one: no limiter"),
        pytest.param(config(-1, None), True, id="whatever the ceiling"),
        pytest.param(config(60, None), False, id="a period without a ceiling"),
        pytest.param(config(60, 99), False, id="a ceiling below the limit"),
    ],
)
def test_without_a_bucket_all_or_nothing_is_allowed(given_config: CpuBurst, *, allowed: bool) -> None:
    before = Limiter(capacity_tokens=CAPACITY, tokens=500)
    result = limit(given_config, before, start=1, used_pct=80, elapsed_s=1)

    assert result == Limited(allowed=allowed, limiter=None, terms={})
    assert limiter_capacity(given_config) is None


@pytest.mark.parametrize(
    ("period_s", "ceiling_pct", "capacity"), [(60, 300, 12_000), (0, 300, 0), (60, 100, 0), (1, 101, 1)]
)
def test_the_bucket_holds_the_period_at_the_ceiling(period_s: int, ceiling_pct: int, capacity: int) -> None:
    assert limiter_capacity(config(period_s, ceiling_pct)) == capacity


def test_a_bucket_of_no_size_allows_nothing() -> None:
    result = limit(config(0, 300), None, start=0, used_pct=0, elapsed_s=100)

    assert (result.allowed, result.limiter) == (False, Limiter(capacity_tokens=0, tokens=0))


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
    calm = limited(tokens, used_pct, elapsed_s).limiter
    busy = limited(tokens, used_pct + more_pct, elapsed_s).limiter

    assert calm is not None
    assert busy is not None
    assert busy.tokens <= calm.tokens


def test_the_terms_are_the_arithmetic_in_order() -> None:
    assert list(limited(500, 150, 3).terms.items()) == [
        ("used_pct", 150),
        ("elapsed_s", 3),
        ("capacity_tokens", CAPACITY),
        ("before_tokens", 500),
        ("change_tokens", -150),
        ("after_tokens", 350),
    ]
