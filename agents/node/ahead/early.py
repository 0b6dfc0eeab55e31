"""PURE: may a sample be taken before its tick?

Not close upon another, for a rate over little time is mostly the counters' own coarseness. And the more seldom the
more such samples came to nothing: pressure that stands is no news. What was silent for a while is news again.
"""

from __future__ import annotations

from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.decisions.be_limits import looser

APART_NS = 210_000_000
"""The sampler wants 200 ms, and a timer may come a moment early."""
PAUSE_NS_MAX = 32_000_000_000
CALM_NS = 2_000_000_000


class Early:
    """Paces early samples of one cause."""

    def __init__(self) -> None:
        self._pause_ns = APART_NS
        self._in_vain = 0
        self._asked_ns = self._taken_ns = -PAUSE_NS_MAX
        self._seq = self._cut_seq = -1

    def asked(self, now_ns: int, *, last_ns: int) -> int | None:
        """When to take the sample that is asked for now; None: it is left to the ticks.

        Args:
            now_ns: the monotonic instant.
            last_ns: of the newest sample, whatever it was taken for.

        """
        if now_ns - self._asked_ns > max(CALM_NS, self._pause_ns):
            self._begin()
        self._asked_ns = now_ns
        at_ns = max(now_ns, last_ns + APART_NS)
        return None if at_ns < self._taken_ns + self._pause_ns else at_ns

    def took(self, now_ns: int, seq: int) -> None:
        """An early sample was taken: until it proves of use, the next may come after twice the pause.

        But for the first: much of its rate is of before what it was taken for, and the next one sees it whole.
        """
        self._taken_ns, self._seq = now_ns, seq
        self._in_vain += 1
        if seq == self._cut_seq:
            self._begin()
        elif self._in_vain > 1:
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)

    def cut(self, seq: int) -> None:
        """Best-effort pods were cut by this sample, of whatever kind; it may come before ``took``."""
        self._cut_seq = seq
        if seq == self._seq:
            self._begin()

    def _begin(self) -> None:
        self._pause_ns, self._in_vain = APART_NS, 0


def took_back(outcome: NodeOutcome) -> bool:
    """Whether best-effort pods lost something by it: a limit was cut, or one of them has to go."""
    if outcome.result != "applied":
        return False
    before, after = outcome.before, outcome.after
    return outcome.spent is not None or (before is not None and after is not None and looser(before, after))
