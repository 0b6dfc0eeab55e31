"""Which agent of a node is believed, by the append times of its samples."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.schemas.sample import AHEAD_S, boot_problem
from slacktide.streams.worker.nodes import BOOTS_MAX, GRACE_MS, Boots
from testbed.stories import each_story, story

LOW, MIDDLE, HIGH = (f"{number:012d}-0badcafe" for number in (1_700_000_001, 1_700_000_002, 1_700_086_000))
T0 = 1_700_000_100_000


class Node:
    """Boots that send samples, by letters; the answers are run together."""

    ids = {"L": LOW, "M": MIDDLE, "H": HIGH}

    def __init__(self) -> None:
        self.boots = Boots()
        self.told: list[str] = []

    def see(self, *samples: str) -> None:
        """Samples such as ``L1.5``: by boot and seconds after the beginning; ``L5@1``: observed a second after it."""
        self.told = []
        for one in samples:
            at, _, observed = one[1:].partition("@")
            at_ms, observed_ms = (T0 + round(float(text) * 1_000) for text in (at, observed or at))
            self.told.append(self.boots.see(self.ids[one[0]], at_ms, observed_ms))

    def sends(self, who: str, from_ms: int, count: int, apart_ms: int) -> None:
        """Each of those in turn."""
        self.see(*(f"{who[n % len(who)]}{(from_ms + n * apart_ms) / 1_000}" for n in range(count)))

    def repeats(self, real: str, recorded: str, seconds: int) -> None:
        """A real agent each second, and behind each fifth a recorded sample."""
        sent = [(f"{real}{n}", f"{recorded[0]}{n + 0.5}@{recorded[1:]}") for n in range(10, 10 + seconds)]
        self.see(*(one for n, pair in enumerate(sent) for one in pair[: 1 + (n % 5 == 0)]))

    def both_send(self, from_ms: int, count: int, apart_ms: int) -> None:
        """HIGH and LOW in the same moments."""
        self.see(*(f"{who}{(from_ms + n * apart_ms) / 1_000}" for n in range(count) for who in "HL"))

    def ever_higher(self, count: int) -> None:
        """Once a second, and half a second later LOW."""
        self.told = []
        for n in range(count):
            higher = f"{1_700_050_000 + n:012d}-00000000"
            for boot, at_ms in ((higher, T0 + (n + 1) * 1_000), (LOW, T0 + n * 1_000 + 1_500)):
                self.told.append(self.boots.see(boot, at_ms, at_ms))

    def see_late(self, who: str, count: int) -> None:
        self.told = [self.boots.see_late(self.ids[who], T0 + n * 1_000, T0) for n in range(count)]

    def adopt(self, who: str) -> None:
        self.boots.adopt(self.ids[who])

    def state(self) -> dict[str, object]:
        told = [f"{len(list(same))} {answer}" for answer, same in itertools.groupby(self.told)]
        return {
            "answers": told,
            "believed": self.boots.believed,
            "two": self.boots.two,
            "why": self.boots.two and self.boots.reason,
        }


@each_story("boots")
def test_whose_samples_are_believed(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Node(), steps) == snapshot


@pytest.mark.parametrize("boot_id", ["000000000001-00000000", "001700000000-699ba214", f"{T0 // 1_000:012d}-ffffffff"])
def test_what_an_agent_makes_is_a_boot_id(boot_id: str) -> None:
    assert boot_problem(boot_id, T0) == ""


@pytest.mark.parametrize(
    "boot_id",
    ["", "b", "999999999999-x", "1-00000000", "000000000001-0000000", "000000000001-0000000A", "000000000001_00000000",
     "000000000001-00000000\n", "\u0660" * 12 + "-00000000", "0000000000010-0000000"],
)  # fmt: skip
def test_anything_else_is_not(boot_id: str) -> None:
    assert "is not 12 digits, a dash and 8 hexadecimal digits" in boot_problem(boot_id, T0)


def test_a_start_counter_is_at_most_a_day_ahead_of_kafkas_clock() -> None:
    """Where the counter is lost the start time in seconds stands in."""
    latest = T0 // 1_000 + AHEAD_S

    assert boot_problem(f"{latest:012d}-00000000", T0) == ""
    assert f"above {latest}" in boot_problem(f"{latest + 1:012d}-00000000", T0)
    assert boot_problem("999999999999-00000000", T0)


SAMPLES = st.lists(st.tuples(st.sampled_from([LOW, MIDDLE, HIGH]), st.integers(0, 20_000)), max_size=60)


@given(SAMPLES)
def test_whoever_sends_alone_is_believed_in_the_end(gaps: list[tuple[str, int]]) -> None:
    """Whatever came before, in whatever order: 15 s of one boot alone, and it is believed, nobody else is."""
    boots, at_ms = Boots(), T0
    for boot_id, gap_ms in gaps:
        at_ms += gap_ms
        boots.see(boot_id, at_ms, at_ms)
    told = [boots.see(LOW, at_ms + n * 1_000, at_ms + n * 1_000) for n in range(1, 18)]

    assert (told[-1], boots.believed, boots.two) == ("believed", LOW, False)


@given(SAMPLES)
def test_a_higher_boot_is_believed_at_once_unless_two_send(gaps: list[tuple[str, int]]) -> None:
    boots, at_ms = Boots(), T0
    for boot_id, gap_ms in gaps:
        at_ms += gap_ms
        before, beaten = boots.believed, boots._beaten[0]
        told = boots.see(boot_id, at_ms, at_ms)
        if boot_id > before and boot_id != beaten:
            assert told in {"believed", "two boots"}
            assert boots.believed == boot_id


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=20))
def test_restarts_never_alarm(gaps: list[int]) -> None:
    """Each agent ends before the next begins; what it had in flight comes within the grace."""
    boots, at_ms = Boots(), T0
    for number, gap_ms in enumerate(gaps, start=1):
        at_ms += gap_ms
        assert boots.see(f"{number:012d}-00000000", at_ms, at_ms) == "believed"
        for late_ms in (1, GRACE_MS // 2, GRACE_MS):
            boots.see(f"{number - 1:012d}-00000000", at_ms + late_ms, at_ms)
        assert not boots.two


def test_boots_without_number_take_no_memory() -> None:
    boots = Boots()
    boots.see(HIGH, T0, T0)
    for n in range(1_000):
        boots.see(f"{n:012d}-00000000", T0 + 1_000 + n, T0)

    assert len(boots._others) <= BOOTS_MAX
