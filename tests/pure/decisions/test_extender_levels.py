"""Scores as an extender tells them: 0 to 10, close nodes in their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.pod_placement import levels

SCORES = st.lists(st.integers(0, 1_000), max_size=40)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param([0, 0], [0, 0], id="nothing attracts"),
        pytest.param([3], [10], id="the best is 10, however low"),
        pytest.param([500, 500], [10, 10], id="equal ones are equal"),
        pytest.param([901, 900, 899], [10, 9, 8], id="close ones keep their order"),
        pytest.param([900, 880, 200, 190], [10, 9, 3, 2], id="who is far behind stays there"),
        pytest.param([1_000, 1, 0], [10, 1, 0], id="only nothing is 0"),
        pytest.param(list(range(1_000, 985, -1)), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1], id="ten steps"),
    ],
)
def test_levels(scores: list[int], expected: list[int]) -> None:
    assert levels(scores) == expected


@pytest.mark.parametrize(
    ("scores", "first", "expected"),
    [
        pytest.param([500, 500, 500], 1, [9, 10, 9], id="one of equal ones is alone at the top"),
        pytest.param([700, 500, 700, 699], 2, [9, 7, 10, 8], id="the others begin a step below"),
        pytest.param([901, 900], 0, [10, 9], id="who is alone there anyway"),
        pytest.param([0, 0], 0, [0, 0], id="nothing attracts"),
    ],
)
def test_the_first_of_the_best_is_told_from_them(scores: list[int], first: int, expected: list[int]) -> None:
    assert levels(scores, first) == expected


@given(SCORES)
def test_no_order_is_turned_round_and_ten_different_scores_are_ten_levels(scores: list[int]) -> None:
    pairs = sorted(zip(scores, levels(scores), strict=True), reverse=True)
    told = [level for _, level in pairs]
    assert told == sorted(told, reverse=True)
    assert all(0 <= level <= 10 and (level == 0) == (score == 0) for score, level in pairs)
    of_score = dict(pairs)
    for number, score in enumerate(sorted({one for one in of_score if one}, reverse=True)):
        assert of_score[score] <= max(1, 10 - number)
        assert of_score[score] <= -(-10 * score // max(scores))


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_the_question_says_nothing(scores: list[int], random) -> None:
    shuffled = random.sample(scores, len(scores))
    assert sorted(zip(scores, levels(scores), strict=True)) == sorted(zip(shuffled, levels(shuffled), strict=True))
