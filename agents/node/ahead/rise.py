"""PURE: did latency-sensitive pods' CPU use rise by more than may wait for the next sample?"""

from __future__ import annotations

RISE_PCT = 5
"""Of the node. Less than that is left to the tick, whatever comes of it."""
USUAL_TIMES = 3
"""A service whose use jumps about by itself must rise by so many times what it usually does from look to look."""
USUAL_LOOKS = 16
"""What is usual is an average over about so many looks."""
SAMPLE_NS_MIN = 200_000_000
"""A sample so close upon another has no rate of its own."""


class Rise:
    """Compares the use between two looks with what the newest sample saw."""

    def __init__(self) -> None:
        self._look: tuple[int, int] | None = None
        self._sample: tuple[int, int] | None = None
        self._seen_milli: float | None = None
        self._usual_milli = 0.0
        self.lately_milli: int | None = None
        """Use between the last two looks."""

    def sampled(self, now_ns: int, used_ns: int) -> None:
        """A sample was taken; ``used_ns`` is all CPU time of these pods so far."""
        if self._sample is not None:
            if now_ns - self._sample[0] < SAMPLE_NS_MIN:
                return
            self._seen_milli = _milli(self._sample, (now_ns, used_ns))
        self._sample = now_ns, used_ns

    def looked(self, now_ns: int, used_ns: int, capacity_milli: int) -> bool:
        """Whether use since the last look was so far above what the newest sample saw."""
        before, self._look = self._look, (now_ns, used_ns)
        if before is None:
            return False
        earlier_milli, lately_milli = self.lately_milli, min(max(0, round(_milli(before, self._look))), capacity_milli)
        self.lately_milli = lately_milli
        if self._seen_milli is None or earlier_milli is None:
            return False
        above_milli = lately_milli - self._seen_milli
        least_milli = max(capacity_milli * RISE_PCT / 100, USUAL_TIMES * self._usual_milli)
        # Not what it is above the sample: that stands until the next one, and would make the next step look usual.
        self._usual_milli += (abs(lately_milli - earlier_milli) - self._usual_milli) / USUAL_LOOKS
        return above_milli >= least_milli


def _milli(before: tuple[int, int], now: tuple[int, int]) -> float:
    return (now[1] - before[1]) * 1000 / (now[0] - before[0])
