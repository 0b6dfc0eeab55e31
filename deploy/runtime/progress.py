"""A bar for long work on a terminal: the done part, and an estimate of the time that is left."""

import sys
import time

EVERY_S = 0.2
ESTIMATED_FROM = 0.02
"""An estimate from a smaller part would be a guess."""
_WIDTH = 30
_MINUTE_S = 60


class Bar:
    """Shows progress on stderr, if it is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._begun_s = self._next_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Return the time since the beginning."""
        return time.monotonic() - self._begun_s

    @property
    def due(self) -> bool:
        """Return whether to show it again."""
        return self._shown and time.monotonic() >= self._next_s

    def show(self, part: float, text: str) -> None:
        """Show the done part of the work, from 0 to 1."""
        if self._shown:
            self._next_s = time.monotonic() + EVERY_S
            part = min(1.0, max(0.0, part))
            full = round(part * _WIDTH)
            bar = "#" * full + "." * (_WIDTH - full)
            sys.stderr.write(f"\r{self._what} [{bar}] {part:4.0%}  {text}{left_text(part, self.elapsed_s)}\x1b[K")
            sys.stderr.flush()

    def done(self) -> None:
        """Remove the bar."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def left_text(part: float, elapsed_s: float) -> str:
    """Estimate the time that is left by the time so far; "": too early."""
    if part < ESTIMATED_FROM:
        return ""
    left_s = elapsed_s * (1 - part) / part
    return f", {left_s:.0f} s left" if left_s < 2 * _MINUTE_S else f", {left_s / _MINUTE_S:.0f} min left"
