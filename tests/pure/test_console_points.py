"""Points of the console's history: packing loses nothing, coarser points keep extremes and times."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.deploy.console.history.points import (
    AT,
    COLUMNS,
    FINE,
    POINTS,
    STEPS_S,
    Block,
    empty,
    pack,
    point,
    rolled,
    unpack,
)
from slacktide.deploy.console.history.view import NONE, UNLIMITED

FIGURES = st.one_of(st.just(NONE), st.just(UNLIMITED), st.integers(0, 300), st.integers(0, 1 << 45))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Some seconds of a minute, with figures in a few columns."""
    block = empty(1)
    for slot in draw(st.sets(st.integers(0, POINTS - 1), max_size=12)):
        block[0][slot] = 1
        for name in ("ls_cpu_milli", "limit_cpu_milli", "evictions", "state", "sample_offset"):
            block[AT[name]][slot] = draw(FIGURES)
    return block


@st.composite
def some_minutes(draw: st.DrawFn, count: int) -> list[Block | None]:
    """So many minutes, of three that differ and of those that were not recorded."""
    kinds = [None, *(draw(blocks()) for _ in range(3))]
    return [kinds[at] for at in draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))]


@given(blocks(), st.integers(0, POINTS - 1))
def test_a_block_comes_out_as_it_was_packed(block: Block, slot: int) -> None:
    blob = pack(block)
    assert unpack(blob) == block
    assert point(blob, slot) == [column[slot] for column in block]


@settings(max_examples=20)
@given(some_minutes(10))
def test_coarser_points_keep_extremes_sums_and_times(minutes: list[Block | None]) -> None:
    _, step_s, _ = STEPS_S
    made = rolled(minutes, 1, step_s)
    seconds = {name: _line(minutes, name) for name in FINE}
    for slot in range(POINTS):
        span = slice(slot * step_s, (slot + 1) * step_s)
        there = any(one > 0 for one in seconds["present"][span])
        assert (made[0][slot] > 0) == there
        for place, column in enumerate(COLUMNS if there else ()):
            known = [one for one in seconds[column.of][span] if one != NONE]
            assert made[place][slot] == (_expected(column.how, known) if known else NONE), column


@settings(max_examples=4)
@given(some_minutes(60))
def test_rolled_up_twice_an_hour_has_the_extremes_of_its_seconds(minutes: list[Block | None]) -> None:
    tens = [rolled(minutes[at : at + 10], 1, 10) for at in range(0, 60, 10)]
    hour = rolled(tens, 10, 60)
    for place, column in enumerate(COLUMNS):
        for slot in range(POINTS):
            known = [one for one in (minutes[slot] or empty(1))[AT[column.of]] if one != NONE]
            if hour[0][slot] > 0:
                assert hour[place][slot] == (_expected(column.how, known) if known else NONE), column


def _line(minutes: list[Block | None], name: str) -> list[int]:
    at = AT[name]
    return [value for block in minutes for value in (empty(1) if block is None else block)[at]]


def _expected(how: str, known: list[int]) -> int:
    if how == "last":
        return known[-1]
    return {"min": min, "max": max, "sum": sum, "worst": max}[how](array("q", known))
