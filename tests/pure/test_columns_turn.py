"""Numbers of one sample are read and judged as those of many are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.sample_columns import NODE_NUMBERS
from slacktide.streams.columns.numbers import END, NoNumbersError, columns, numbers, sound
from slacktide.streams.columns.turn import alone

some_numbers = st.sampled_from([0, 1, -1, -2, 7, AMOUNT_MAX, AMOUNT_MAX + 1, 9_999_999_999, 10_000_000_000, 1 << 70])
some_texts = st.sampled_from(["1.0", "1e3", "null", "007", "-", "", " 5"])


@given(st.lists(st.just(3), min_size=6, max_size=6), st.lists(some_numbers, max_size=5), st.none() | some_texts)
def test_a_sample_alone_is_judged_as_among_others(node: list[int], rest: list[int], odd: str | None) -> None:
    text = ",".join([*map(str, [*node, *rest]), *([] if odd is None else [odd])]).encode()
    try:
        flat = numbers([text])
        count = len(flat) - 1
        whole = count >= NODE_NUMBERS and count % 2 == 0
        good = whole and sound(columns(flat, np.array([(count - NODE_NUMBERS) // 2]))).all()
    except NoNumbersError:
        good = False
    assert alone(text) == ((3, 3) if good and odd != " 5" else None)


@pytest.mark.parametrize("bad", [b"1.5", b"null", b'"7"', b"1" * 30, b"-"])
def test_a_bad_list_does_not_spoil_the_next_one_while_its_error_is_handled(bad: bytes) -> None:
    try:
        numbers([bad])
    except NoNumbersError:
        assert numbers([b"7"]).tolist() == [7, END]
    else:
        pytest.fail("it was read")
