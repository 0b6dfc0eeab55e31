"""A whole day from one seed: random faults for 24 hours, then a quiet minute.

Agents take a sample each second around a fault, and seldom while nothing happens: a day of seconds costs
minutes of CPU, and the seconds in which nothing happens prove little.
"""

from bisect import bisect_right
from functools import partial

from sim.world import QUIET_MS, Parts, World

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
