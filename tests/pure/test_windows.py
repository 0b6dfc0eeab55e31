"""Windows in event time: what is averaged over what, what is late, and how much is kept."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slacktide.schemas.metric import Use
from slacktide.schemas.sample import NodeUse, PodUse
from slacktide.streams.windows.node_window import SLOTS_MAX, Averages, NodeWindow
from slacktide.streams.windows.series import Series
from testbed.samples import START_MS, sample


def merge(window: NodeWindow, at_ms: int, interval_ms: int, cpu_milli: int | None, *pods: PodUse) -> bool:
    said = sample(
        0,
        observed_ms=START_MS + at_ms,
        interval_ms=interval_ms,
        use=NodeUse(cpu_milli=cpu_milli, mem_bytes=1_000),
        pod_use=list(pods),
    )
    return window.merge(said, frozenset())


def averages(window: NodeWindow) -> Averages:
    found = window.averages()
    assert found is not None
    return found


def pod(uid: str, cpu_milli: int | None, mem_bytes: int | None = 100) -> PodUse:
    return PodUse(uid=uid, cpu_milli=cpu_milli, mem_bytes=mem_bytes)


def test_a_figure_weighs_as_long_as_it_held() -> None:
    """3 s at 100 and 1 s at 500 are 200 on average."""
    window = NodeWindow(10_000)
    merge(window, 3_000, 3_000, 100)
    merge(window, 4_000, 1_000, 500)

    assert (averages(window).node.cpu_milli, averages(window).covered_ms, averages(window).samples) == (200, 4_000, 2)


def test_what_is_older_than_the_window_leaves_it() -> None:
    window = NodeWindow(10_000)
    for second in range(1, 31):
        merge(window, second * 1_000, 1_000, 1_000 if second <= 20 else 0)

    assert (averages(window).node.cpu_milli, averages(window).covered_ms, averages(window).samples) == (0, 10_000, 10)


def test_a_gap_is_not_covered_and_counts_as_nothing() -> None:
    window = NodeWindow(10_000)
    merge(window, 1_000, 1_000, 300)
    merge(window, 8_000, 1_000, 100)

    assert (averages(window).node.cpu_milli, averages(window).covered_ms) == (200, 2_000)


@pytest.mark.parametrize("at_ms", [5_000, 4_999, 1_000, -100_000])
def test_a_late_sample_is_not_merged(at_ms: int) -> None:
    window = NodeWindow(10_000)
    merge(window, 5_000, 1_000, 100)

    assert not merge(window, at_ms, 1_000, 900)
    assert averages(window).node.cpu_milli == 100


def test_time_that_is_covered_already_is_not_covered_twice() -> None:
    """A restarted agent's first interval may reach back before the last sample."""
    window = NodeWindow(10_000)
    merge(window, 5_000, 1_000, 100)
    merge(window, 6_000, 4_000, 300)

    assert (averages(window).node.cpu_milli, averages(window).covered_ms) == (200, 2_000)


def test_a_boots_first_sample_covers_nothing() -> None:
    """It has no interval, hence no rates."""
    window = NodeWindow(10_000)
    merge(window, 1_000, 0, None)

    assert window.averages() is None


def test_system_is_what_no_pod_accounts_for_and_never_less_than_nothing() -> None:
    window = NodeWindow(10_000)
    merge(window, 1_000, 1_000, 500, pod("a", 100), pod("b", 200))
    merge(window, 2_000, 1_000, 500, pod("a", 400), pod("b", 200))

    assert averages(window).system == Use(cpu_milli=100, mem_bytes=800)


def test_a_pod_is_averaged_over_its_own_time() -> None:
    window = NodeWindow(10_000)
    merge(window, 1_000, 1_000, 900, pod("old", 100))
    merge(window, 2_000, 1_000, 900, pod("old", 300), pod("new", 500))

    assert {uid: use.cpu_milli for uid, use in averages(window).pods.items()} == {"old": 200, "new": 500}


def test_a_figure_that_is_missing_does_not_pass_for_nothing() -> None:
    """A pod of unknown CPU has no metric: then its request counts."""
    window = NodeWindow(10_000)
    merge(window, 1_000, 1_000, 900, pod("a", None), pod("b", 100))
    merge(window, 2_000, 1_000, None, pod("b", 100))

    assert averages(window).pods.keys() == {"b"}
    assert averages(window).node.cpu_milli == 900


def test_a_pod_that_neither_the_sample_nor_the_pod_list_names_is_dropped() -> None:
    window = NodeWindow(10_000)
    first = sample(1, pod_use=[pod("listed", 100), pod("gone", 100)])
    window.merge(first, {"listed"})
    window.merge(sample(2, pod_use=[]), {"listed"})

    assert averages(window).pods.keys() == {"listed"}


def test_a_long_window_has_no_more_slots_than_a_short_one() -> None:
    """A day is kept in slots of 24 minutes: coarse at its far end, exact in what it sums."""
    window = NodeWindow(86_400_000)
    for minute in range(1, 3_001):
        merge(window, minute * 60_000, 60_000, minute % 2 * 100)

    assert 86_400_000 * (1 - 1 / SLOTS_MAX) <= averages(window).covered_ms <= 86_400_000
    assert averages(window).node.cpu_milli == 50


def test_a_leap_far_ahead_leaves_only_what_comes_after_it() -> None:
    window = NodeWindow(10_000)
    merge(window, 1_000, 1_000, 900)
    merge(window, 10**12, 10**12, 100)

    assert (averages(window).node.cpu_milli, averages(window).covered_ms) == (100, 10_000)


def test_a_series_knows_nothing_before_it_is_told() -> None:
    assert Series(3).average() is None


@given(
    window_s=st.integers(1, 120),
    steps=st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 10_000)), min_size=1, max_size=60),
)
@example(window_s=112, steps=[(36_654, 0), (30_000, 0), (30_000, 0), (30_000, 0)])
def test_averages_lie_between_what_was_seen_and_cover_no_more_than_the_window(
    window_s: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever the intervals; and within the window, to a slot, nothing is lost."""
    window = NodeWindow(window_s * 1_000)
    at_ms = 0
    for interval_ms, cpu_milli in steps:
        at_ms += interval_ms
        merge(window, at_ms, interval_ms, cpu_milli)
    found = averages(window)
    slot_ms = max(1_000, -(-window_s * 1_000 // SLOTS_MAX))

    assert min(cpu for _, cpu in steps) <= found.node.cpu_milli <= max(cpu for _, cpu in steps)
    assert min(at_ms, window_s * 1_000 - slot_ms) <= found.covered_ms <= window_s * 1_000
