"""How much is to be released of what a node uses."""

from hypothesis import assume, given
from hypothesis import strategies as st

from slacktide.streams.decisions.evict.evict_tasks import UsageThreshold, by_usage


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 100), st.none() | st.integers(-5, 99))
def test_what_stays_is_near_the_lower_percent(capacity: int, used: int, threshold: int, lower: int | None) -> None:
    """Only the whole percents are lost: less than one percent of the node, and a byte."""
    lower_pct = threshold - 2 if lower is None else lower
    assume(lower_pct < threshold)

    at = UsageThreshold(threshold_pct=threshold, lower_pct=lower)
    found = by_usage("F", "mem_bytes", capacity=capacity, used=used, at=at)

    if 100 * used < threshold * capacity:
        assert found.amounts == {}
    else:
        stays_pct = 100 * (used - found.amounts["mem_bytes"]) / capacity
        assert 0 <= stays_pct - lower_pct < 1 + 100 / capacity
