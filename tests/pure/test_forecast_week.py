"""A generated week of ten nodes: mid resources by prediction move little, and sell more than simpler rules do."""

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


@pytest.mark.parametrize("case", ["", "careful_", "careful_at_once_"], ids=["an hour", "wider margin", "ten minutes"])
def test_mid_sells_more_than_a_static_share_or_a_percentile_of_half_an_hour_at_equal_violations(
    week: dict[str, float], case: str
) -> None:
    """Against who knows how long pods run: an hour, or with a margin of 15% also ten minutes."""
    others = (f"{case}window_", f"{case}static_")

    assert week[f"{case}share"] > max(week[f"{which}share"] for which in others) > 0.5
    assert week[f"{case}violated_s"] < 0.0005 * 10 * 6 * 86_400
    assert max(week[f"{which}violated_s"] for which in others) <= week[f"{case}violated_s"]


def test_with_the_default_margin_a_percentile_is_as_good_for_pods_of_ten_minutes(week: dict[str, float]) -> None:
    """It follows the day; what it foresees of bursts is less."""
    assert abs(week["at_once_share"] - week["at_once_window_share"]) < 0.01
    assert week["at_once_share"] > week["at_once_static_share"]
