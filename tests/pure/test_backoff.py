"""Waits grow to a ceiling, differ between processes, and begin anew after a success."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.backoff import LEAST, Backoff


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next_s() for _ in range(count)]


def test_ceilings_double_up_to_the_highest() -> None:
    assert waits(Backoff(0.5, 5.0, random=lambda: 1.0), 6) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_no_wait_is_nothing() -> None:
    assert waits(Backoff(1.0, 4.0, random=lambda: 0.0), 3) == [LEAST, 2 * LEAST, 4 * LEAST]


def test_after_a_success_it_begins_anew() -> None:
    backoff = Backoff(1.0, 30.0, random=lambda: 1.0)
    waits(backoff, 5)
    backoff.reset()

    assert waits(backoff, 2) == [1.0, 2.0]


@given(st.integers(), st.integers(1, 12))
def test_a_wait_stays_within_its_ceiling(seed: int, count: int) -> None:
    chance = random.Random(seed).random
    found = waits(Backoff(0.2, 5.0, random=chance), count)

    assert all(LEAST * 0.2 <= wait_s <= min(5.0, 0.2 * 2**number) for number, wait_s in enumerate(found))


def test_a_fleet_that_lost_its_connections_together_comes_back_spread_out() -> None:
    """A thousand agents, whose fourth attempt comes within 0.1 s of one another's for few of them only."""
    chance = random.Random(7).random
    fleet = sorted(sum(waits(Backoff(0.5, 5.0, random=chance), 4)) for _ in range(1_000))

    assert max(sum(1 for other in fleet if 0 <= other - one < 0.1) for one in fleet) < 80
    assert max(later - earlier for earlier, later in pairwise(fleet)) < 0.5
