"""A rise in what latency-sensitive pods use: seen soon, and not where there is none."""

import random

from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.ahead import Rise
from testbed.stories import each_story, story

MS = 1_000_000
CAPACITY_MILLI = 4_000
LOOK_MS = 100


class Load:
    """CPU time of pods whose use changes, and a Rise that looks at it every 100 ms and samples every second."""

    def __init__(self) -> None:
        self.seen: list[int] = []
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
        self.seen = seen
        return seen

    def sample(self) -> None:
        """One between the ticks."""
        self.rise.sampled(self.now_ms * MS, self.used_ns)

    def state(self) -> dict[str, object]:
        return {"a rise was seen after ms": self.seen, "used lately": self.rise.lately_milli}


@each_story("rise")
def test_what_is_a_rise(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Load(), steps) == snapshot


@given(steady_milli=st.integers(0, 4_000))
def test_a_steady_load_asks_for_nothing(steady_milli: int) -> None:
    assert Load().run(5_000, steady_milli) == []


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
