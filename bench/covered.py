"""How much of a node's time its samples tell of. Pure."""

from bisect import bisect_right
from collections.abc import Iterable


class Covered:
    """All that samples cover."""

    def __init__(self, samples: Iterable[tuple[int, int]]) -> None:
        """Of each its end and its interval, ms, in the order of the log; one that comes late tells nothing."""
        self._ends_ms, self._sums_ms = [0], [0]
        for end_ms, interval_ms in samples:
            before_ms = self._ends_ms[-1]
            if end_ms > before_ms:
                self._ends_ms.append(end_ms)
                self._sums_ms.append(self._sums_ms[-1] + end_ms - max(end_ms - interval_ms, before_ms))

    def within_ms(self, end_ms: int, window_ms: int, step_ms: int) -> int:
        """Of a window up to this time, which goes on by steps: its last one may have just begun."""
        begin_ms = -(-end_ms // step_ms) * step_ms - window_ms
        return self._until_ms(end_ms) - self._until_ms(max(0, begin_ms))

    def _until_ms(self, at_ms: int) -> int:
        later = bisect_right(self._ends_ms, at_ms)
        sum_ms = self._sums_ms[later - 1]
        if later == len(self._ends_ms):
            return sum_ms
        begin_ms = self._ends_ms[later] - (self._sums_ms[later] - sum_ms)
        return sum_ms + max(0, at_ms - begin_ms)
