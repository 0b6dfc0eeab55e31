"""A rise in what latency-sensitive pods use: seen soon, and not where there is none."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.ahead.ahead import Rise

MS = 1_000_000
CAPACITY_MILLI = 4_000
LOOK_MS = 100


class Load:
    """CPU time of pods whose use changes, and a Rise that looks at it every 100 ms and samples every second."""

    def __init__(self) -> None:
        self.rise = Rise()
        self.now_ms = self.used_ns = 0

    def run(self, ms: int, milli: int) -> list[int]:
        """Go on with this use; when a rise was seen, in ms since the beginning of this."""
        began_ms, seen = self.now_ms, []
        for _ in range(ms // 10):
            self.now_ms += 10
            self.used_ns += 10 * MS * milli // 1_000
            if self.now_ms % 1_000 == 0:
                self.rise.sampled(self.now_ms * MS, self.used_ns)
            if self.now_ms % LOOK_MS == 0 and self.rise.looked(self.now_ms * MS, self.used_ns, CAPACITY_MILLI):
                seen.append(self.now_ms - began_ms)
        return seen


@given(steady_milli=st.integers(0, 4_000))
def test_a_steady_load_asks_for_nothing(steady_milli: int) -> None:
    assert Load().run(5_000, steady_milli) == []


@pytest.mark.parametrize(
    ("rise_milli", "within_ms"),
    [
        pytest.param(200, 100, id="a twentieth of the node"),
        pytest.param(2_400, 100, id="a spike"),
    ],
)
def test_a_rise_is_seen_soon(rise_milli: int, within_ms: int) -> None:
    load = Load()
    load.run(3_000, 500)

    assert load.run(900, 500 + rise_milli)[0] == within_ms


def test_less_than_a_twentieth_of_the_node_waits_for_the_tick() -> None:
    load = Load()
    load.run(3_000, 500)

    assert load.run(900, 690) == []


def test_a_fall_is_no_rise_and_a_sample_ends_the_news() -> None:
    """A tick that sees the new use is what it is compared with from then on."""
    load = Load()
    load.run(3_000, 500)
    load.run(2_000, 2_500)

    assert load.run(3_000, 2_500) == []
    assert load.run(3_000, 100) == []


def test_what_a_diluted_sample_saw_of_a_rise_is_not_the_end_of_it() -> None:
    """A sample whose rate is mostly of before the rise: the next look asks again."""
    load = Load()
    load.run(3_700, 0)
    load.run(100, 4_000)
    load.rise.sampled(load.now_ms * MS, load.used_ns)  # over 800 ms, of which 100 were busy

    assert load.run(100, 4_000) == [100]


def test_a_step_soon_after_another_is_as_much_news_as_the_first() -> None:
    """What the tick has not seen yet of the first is none of what the service usually does."""
    load = Load()
    load.run(3_100, 500)
    load.run(900, 2_500)  # the tick comes at its end, and sees all of it only a second later
    load.run(1_100, 2_500)

    assert load.run(900, 2_900)[0] == 100


def test_a_repeated_sample_is_none() -> None:
    """Close upon another a sample says the same rates again: what they saw is what it sees."""
    load = Load()
    load.run(3_000, 500)
    load.run(100, 4_000)
    load.rise.sampled(load.now_ms * MS, load.used_ns)

    assert load.run(100, 4_000) == [100]


def test_a_restless_service_asks_seldom() -> None:
    """Requests of 10 ms at random on two of four CPUs: use between looks differs by a tenth of the node as a rule."""
    dice, load, asked = random.Random(7), Load(), 0
    for _ in range(6_000):
        asked += len(load.run(10, dice.choice((0, 0, 1_000, 2_000, 4_000, 5_000))))

    assert asked <= 60, "in a minute of six hundred looks"


def test_a_rise_above_the_restlessness_is_seen_all_the_same() -> None:
    dice, load = random.Random(7), Load()
    for _ in range(500):
        load.run(10, dice.choice((0, 1_000, 2_000)))

    assert load.run(900, 4_000)[0] == 100


def test_the_first_sample_tells_nothing_to_compare_with() -> None:
    rise = Rise()
    rise.sampled(0, 0)

    assert not any(rise.looked(at_ms * MS, at_ms * 4 * MS, CAPACITY_MILLI) for at_ms in range(100, 1_000, 100))


def test_it_tells_what_was_used_between_the_last_two_looks() -> None:
    """Of a rise this is most, when the sample that it asks for has only an average since the one before it."""
    load = Load()
    load.run(3_000, 500)
    load.run(100, 2_500)

    assert load.rise.lately_milli == 2_500


def test_nobody_used_more_than_there_is() -> None:
    load = Load()
    load.run(3_000, 500)
    load.run(100, 9_000)

    assert load.rise.lately_milli == CAPACITY_MILLI
