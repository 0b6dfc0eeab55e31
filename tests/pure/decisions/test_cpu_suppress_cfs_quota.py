"""The next CFS quota of the best-effort group."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN, QuotaStep, next_cfs_quota


def step(allowed_milli: int, current_us: int | None, capacity_milli: int = 10_000) -> QuotaStep:
    """On ten CPUs a raise is at most 100 ms, and less than 10 ms is no change."""
    return next_cfs_quota(allowed_milli=allowed_milli, current_us=current_us, capacity_milli=capacity_milli)


allowances = st.integers(-5_000, 200_000)
currents = st.integers(QUOTA_US_MIN, 20_000_000)
capacities = st.integers(0, 128_000)


@given(allowances, currents, capacities)
def test_a_cut_is_never_limited(allowed_milli: int, current_us: int, capacity_milli: int) -> None:
    """Whatever is below the quota by a hundredth of the node or more is gone to at once."""
    target_us = max(allowed_milli * 100, QUOTA_US_MIN)
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    if target_us <= current_us - -(-capacity_milli // 1000) * 1_000:
        assert quota_us == target_us


@given(allowances, currents, capacities)
def test_a_raise_is_never_above_a_tenth_of_the_node_nor_above_the_target(
    allowed_milli: int, current_us: int, capacity_milli: int
) -> None:
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    if quota_us > current_us:
        assert quota_us <= max(allowed_milli * 100, QUOTA_US_MIN)
        assert quota_us - current_us <= -(-capacity_milli // 1000) * 10_000


@given(allowances, st.none() | currents, capacities)
def test_there_is_always_a_quota_of_at_least_the_floor(
    allowed_milli: int, current_us: int | None, capacity_milli: int
) -> None:
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    assert isinstance(quota_us, int)
    assert quota_us >= QUOTA_US_MIN


@given(st.integers(0, 10_000), currents)
def test_steps_come_to_rest_within_a_hundredth_of_the_target(allowed_milli: int, current_us: int) -> None:
    for _ in range(12):
        current_us = step(allowed_milli, current_us).quota_us

    assert abs(current_us - max(allowed_milli * 100, QUOTA_US_MIN)) < 10_000
    assert step(allowed_milli, current_us).quota_us == current_us
