"""A generated week of ten nodes: mid resources by prediction move little, and sell more than simpler rules do."""

from __future__ import annotations

import pytest
from bench.week import report


@pytest.fixture(scope="module")
def week() -> dict[str, float]:
    return report()


def test_mid_moves_five_times_less_than_batch_in_a_day(week: dict[str, float]) -> None:
    assert 0 < week["mid_moved_milli"] * 5 <= week["batch_moved_milli"]


def test_mid_is_withdrawn_once_a_day_at_most(week: dict[str, float]) -> None:
    """By more than a twentieth of the node from one forecast to the next."""
    assert week["withdrawn_a_day"] <= 1


def test_mid_sells_more_than_a_static_share_or_a_percentile_of_half_an_hour_at_equal_violations(
    week: dict[str, float],
) -> None:
    """Of pods that run for an hour, and against who knows that hour."""
    assert week["share"] > week["window_share"] > week["static_share"] > 0.5
    assert week["violated_s"] < 0.001 * 10 * 6 * 86_400
    assert max(week["window_violated_s"], week["static_violated_s"]) <= week["violated_s"]
