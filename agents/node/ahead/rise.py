"""PURE: detects a rise of latency-sensitive CPU use that cannot wait for the next tick."""

from __future__ import annotations

RISE_PCT = 5
"""Smallest rise, in percent of the node. Smaller ones wait for the tick."""
USUAL_TIMES = 3
"""A rise must be this many times the usual change between two looks."""
USUAL_LOOKS = 16
"""The usual change is a moving average over about this many looks."""
SAMPLE_NS_MIN = 200_000_000
"""A sample closer than this to the previous one has no rate of its own."""


class Rise:
    """Compares the use between two looks with the newest sample."""

    def __init__(self) -> None:
        self._look: tuple[int, int] | None = None
        self._sample: tuple[int, int] | None = None
        self._seen_milli: float | None = None
        self._usual_milli = 0.0
        self.lately_milli: int | None = None

    def sampled(self, now_ns: int, used_ns: int) -> None:
        """Record a sample; ``used_ns``: total CPU time of these pods."""
        if self._sample is not None:
            if now_ns - self._sample[0] < SAMPLE_NS_MIN:
                return
            self._seen_milli = _milli(self._sample, (now_ns, used_ns))
        self._sample = now_ns, used_ns

    def looked(self, now_ns: int, used_ns: int, capacity_milli: int) -> bool:
        """Add a look. Return whether use rose far enough above the newest sample."""
        before, self._look = self._look, (now_ns, used_ns)
        if before is None:
            return False
        earlier_milli, lately_milli = self.lately_milli, min(max(0, round(_milli(before, self._look))), capacity_milli)
        self.lately_milli = lately_milli
        if self._seen_milli is None or earlier_milli is None:
            return False
        above_milli = lately_milli - self._seen_milli
        least_milli = max(capacity_milli * RISE_PCT / 100, USUAL_TIMES * self._usual_milli)
        # Not the difference to the sample: that lasts until the next sample, and would make the next rise look usual.
        self._usual_milli += (abs(lately_milli - earlier_milli) - self._usual_milli) / USUAL_LOOKS
        return above_milli >= least_milli


def _milli(before: tuple[int, int], now: tuple[int, int]) -> float:
    return (now[1] - before[1]) * 1000 / (now[0] - before[0])
