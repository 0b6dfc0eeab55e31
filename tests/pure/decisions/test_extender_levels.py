"""Scores as an extender tells them: 0 to 10, close nodes in their order."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.extender_levels import levels
from testbed.vectors import each_row

SCORES = st.lists(st.integers(0, 1_000), max_size=40)


@each_row("scores", "expected")
def test_levels(scores: list[int], expected: list[int]) -> None:
    assert levels(scores) == expected


@each_row("scores", "first", "expected")
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
