"""Limits how often samples are taken ahead of the tick. Pure.

Rates over a short time are too coarse, so two samples need a distance. The pause doubles while early samples lead to
no cut. After a quiet time it is short again.
"""

from __future__ import annotations

from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.decisions.suppress.cpu_suppress import looser

APART_NS = 210_000_000
"""The sampler needs 200 ms, and a timer may fire early."""
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
        """Return when to take the sample requested now; None: wait for the tick. ``last_ns``: of the newest sample."""
        if now_ns - self._asked_ns > max(CALM_NS, self._pause_ns):
            self._begin()
        self._asked_ns = now_ns
        at_ns = max(now_ns, last_ns + APART_NS)
        return None if at_ns < self._taken_ns + self._pause_ns else at_ns

    def took(self, now_ns: int, seq: int) -> None:
        """Record an early sample. From the second one on, the pause doubles until one leads to a cut."""
        self._taken_ns, self._seq = now_ns, seq
        self._in_vain += 1
        if seq == self._cut_seq:
            self._begin()
        elif self._in_vain > 1:
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)

    def cut(self, seq: int) -> None:
        """Record that this sample led to a cut. May be called before ``took``."""
        self._cut_seq = seq
        if seq == self._seq:
            self._begin()

    def _begin(self) -> None:
        self._pause_ns, self._in_vain = APART_NS, 0


def took_back(outcome: NodeOutcome) -> bool:
    """Return whether an outcome cut a limit of best-effort pods or evicted one."""
    if outcome.result != "applied":
        return False
    before, after = outcome.before, outcome.after
    return outcome.spent is not None or (before is not None and after is not None and looser(before, after))
