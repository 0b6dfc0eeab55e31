"""PURE: did latency-sensitive pods' CPU use rise by more than the next sample may wait to hear of?"""

from __future__ import annotations

from collections import deque

RISE_PCT = 10
"""Of the node: as much as a limit is raised by at once."""
SPAN_NS = 200_000_000
"""Use is compared over at least so long: over less it is how threads happen to take turns."""


class Rise:
    """Compares the use of the moment with what the newest sample saw."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()
        self._sampled: tuple[int, int] | None = None
        self._seen_milli: float | None = None

    def sampled(self, now_ns: int, used_ns: int) -> None:
        """A sample was taken; ``used_ns`` is all CPU time of these pods so far."""
        if self._sampled is None or now_ns - self._sampled[0] >= SPAN_NS:
            if self._sampled is not None:
                self._seen_milli = _milli(self._sampled, (now_ns, used_ns))
            self._sampled = now_ns, used_ns

    def looked(self, now_ns: int, used_ns: int, capacity_milli: int) -> bool:
        """Whether use is now a tenth of the node above what the newest sample saw."""
        now = now_ns, used_ns
        self._looks.append(now)
        while len(self._looks) > 1 and now_ns - self._looks[1][0] >= SPAN_NS:
            self._looks.popleft()
        if self._seen_milli is None or now_ns - self._looks[0][0] < SPAN_NS:
            return False
        return _milli(self._looks[0], now) - self._seen_milli >= capacity_milli * RISE_PCT / 100


def _milli(before: tuple[int, int], now: tuple[int, int]) -> float:
    return (now[1] - before[1]) * 1000 / (now[0] - before[0])
