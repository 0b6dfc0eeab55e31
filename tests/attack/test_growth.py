"""The soak's judgement: a leak is found among noise, and what only moves is let pass."""

import random
from collections.abc import Callable

import pytest

from attack.growth import LIMITS, growth

SPAN_S, EACH_S = 900, 5
USUAL = {"rss_mb": 90.0, "descriptors": 30.0, "threads": 9.0, "files": 12.0, "folder_mb": 1.0}
NOISE = {"rss_mb": 3.0, "descriptors": 2.0, "threads": 1.0, "files": 3.0, "folder_mb": 1.0}


def series(figure: str, grows: Callable[[float], float]) -> list[tuple[float, float]]:
    dice = random.Random(1)
    noise = NOISE[figure]
    return [(s, USUAL[figure] + grows(s) + dice.uniform(-noise, noise)) for s in range(0, SPAN_S, EACH_S)]


@pytest.mark.parametrize("figure", LIMITS)
def test_a_steady_leak_is_found(figure: str) -> None:
    leak = 2 * LIMITS[figure].amount / (SPAN_S * 2 / 3)

    assert growth("worker", figure, series(figure, lambda s: leak * s)).too_much


@pytest.mark.parametrize("figure", LIMITS)
def test_noise_and_a_peak_are_no_leak(figure: str) -> None:
    peak = 20 * LIMITS[figure].amount

    assert not growth("worker", figure, series(figure, lambda s: peak if 600 < s < 630 else 0.0)).too_much


@pytest.mark.parametrize("figure", LIMITS)
def test_what_fills_while_it_warms_up_is_no_leak(figure: str) -> None:
    full = 10 * LIMITS[figure].amount

    assert not growth("worker", figure, series(figure, lambda s: full * min(1.0, s / 250))).too_much
