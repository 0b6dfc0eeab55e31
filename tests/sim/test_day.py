"""A day from one seed: hours of random faults break no promise, three by day and 24 at night.

``SLACKTIDE_SEED=123 pytest -s tests/sim/test_day.py`` replays one. Agents take a sample each second around a
fault, and seldom while nothing happens: a day of seconds costs minutes of CPU, and the seconds in which nothing happens
prove little.
"""

import os
from bisect import bisect_right
from functools import partial

import pytest

from sim.world import QUIET_MS, Parts, World
from slacktide.schemas.codec import decode
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import DEAD_LETTER, OUTCOME
from testbed.rungs import NIGHTLY

HOUR_MS = 3_600_000
FAULTS = 160
LEAKS_PER_NODE = 24
LONG = 3
"""Of each kind of trouble that lasts for minutes."""
BRISK_MS = 15_000
"""Seconds are worth looking at from a fault on for so long."""
CALM_INTERVAL_MS = 30_000


class Day(World):
    """One run of 24 hours. The first node's clock is an hour ahead from the beginning."""

    nodes_least = nodes_most = 2
    leisure = 3
    test = "tests/sim/test_day.py"

    def __init__(self, seed: int, parts: Parts | None = None, *, hours: float = 24) -> None:
        self.trouble_ms = int(hours * HOUR_MS)
        self.hours = hours
        self._brisk_from: list[int] = []
        super().__init__(seed, parts)
        self.nodes[0].clock.wall_off_ms = HOUR_MS

    def sampling_ms(self) -> int:
        return CALM_INTERVAL_MS

    @property
    def faults(self) -> int:
        return len(self._brisk_from)

    @property
    def interval_now_ms(self) -> int:
        now_ms = self.timeline.now_ms
        last = bisect_right(self._brisk_from, now_ms) - 1
        since_ms = now_ms - self._brisk_from[last] if last >= 0 else BRISK_MS
        if since_ms < BRISK_MS or now_ms > self.trouble_ms - QUIET_MS:
            return 1_000
        following_ms = self._brisk_from[last + 1] if last + 1 < len(self._brisk_from) else self.trouble_ms
        return max(1_000, min(CALM_INTERVAL_MS, following_ms - now_ms - 5_000))

    def plan(self) -> None:
        rng, trouble = self.rng, self.trouble
        times = trouble.plan(self.trouble_ms, int(FAULTS * self.hours / 24))
        for what in [trouble.long_outage, trouble.long_silence, trouble.nobody_decides] * LONG:
            times.append(rng.randint(1_000, self.trouble_ms - 1_000))
            self.timeline.at(times[-1], what)
        for node in self.nodes:
            for _ in range(int(LEAKS_PER_NODE * self.hours / 24)):
                times.append(rng.randint(1_000, self.trouble_ms - 1_000))
                self.timeline.at(times[-1], partial(trouble.leak, node, rng.randint(10_000, 60_000)))
        self._brisk_from = sorted(times)


SEED = int(os.environ.get("SLACKTIDE_SEED", "3"))
HOURS = 24 if NIGHTLY else 3


@pytest.mark.parametrize("seed", [SEED], ids="seed {}".format)
def test_no_fault_of_a_day_breaks_a_promise(seed: int) -> None:
    """Every act once and only on best-effort, paid for and within budget; the guard covers every gap; all is answered.

    The checks complain by themselves; what is asserted is that the day was a day.
    """
    day = Day(seed, hours=HOURS).run()

    outcomes = [decode(entry.value, NodeOutcome) for entry in day.log.ever[OUTCOME.name]]
    assert day.timeline.now_ms >= HOURS * HOUR_MS
    assert day.faults >= FAULTS * HOURS // 24
    assert day.checker.evicted
    assert day.log.incarnation, "the log was made anew"
    assert day.log.ever[DEAD_LETTER.name], "records that nobody can use came along"
    assert {"stream", "guard"} <= {outcome.origin for outcome in outcomes}
    assert day.nodes[0].clock.wall_off_ms, "its clock is wrong"


def test_a_seed_gives_the_same_day_again() -> None:
    """A quarter of an hour of it is proof enough."""
    assert _quarter(3) == _quarter(3)


def _quarter(seed: int) -> str:
    return Day(seed, hours=1 / 4).run().trace.fingerprint()
