"""What attempts that fail one after the other share: the wait before the next one, and which reasons are logged.

Waits grow, and differ: without jitter a fleet that lost its connections at one moment would come back at one moment,
again and again.
"""

import random as system
from collections.abc import Callable

LEAST = 0.1
"""Of the ceiling: no wait is so short that an attempt follows at once."""


class Backoff:
    """Exponential backoff with full jitter: any wait up to a ceiling that doubles.

    Args:
        first_s: the first ceiling, in seconds.
        most_s: the highest ceiling.
        random: a number from 0 up to 1; a test gives its own.
    """

    def __init__(self, first_s: float, most_s: float, *, random: Callable[[], float] | None = None) -> None:
        self._first_s = self._ceiling_s = first_s
        self._most_s = most_s
        self._random = random or system.random

    def next_s(self) -> float:
        """Seconds to wait before the next attempt; the one after it waits longer."""
        ceiling_s, self._ceiling_s = self._ceiling_s, min(self._most_s, 2 * self._ceiling_s)
        return ceiling_s * (LEAST + (1 - LEAST) * self._random())

    def reset(self) -> None:
        """An attempt succeeded: begin with the first ceiling again."""
        self._ceiling_s = self._first_s


REASONS_MAX = 10


class Reasons:
    """Why attempts fail, so that a log has each reason once, however often they alternate.

    A busy machine may first be late, and show only then what is wrong.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def is_new(self, why: str) -> bool:
        """Whether this is the first time since the last success; no more than ``REASONS_MAX`` are."""
        new = why not in self._logged and len(self._logged) < REASONS_MAX
        if new:
            self._logged.add(why)
        return new

    def reset(self) -> None:
        """An attempt succeeded."""
        self._logged.clear()
