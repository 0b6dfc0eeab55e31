"""Shows a progress bar on a terminal's stderr."""

from __future__ import annotations

import sys
import time

EVERY_S = 0.2
EVERY_RECORDS = 512
WIDTH = 30


class Progress:
    """Shows progress by the timestamps of read records."""

    def __init__(self, what: str, since_ms: int, until_ms: int) -> None:
        self._what = what
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._shown = sys.stderr.isatty()
        self._records = 0
        self._begun_s = self._next_s = time.monotonic()

    def read(self, timestamp_ms: int, records: int = 1) -> None:
        """Add records; ``timestamp_ms``: of the last one."""
        if not self._records:  # retention may begin after the requested start
            self._since_ms = max(self._since_ms, timestamp_ms)
        before, self._records = self._records, self._records + records
        due = before // EVERY_RECORDS < self._records // EVERY_RECORDS
        if self._shown and due and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            span_ms = max(1, self._until_ms - self._since_ms)
            self._show(min(1.0, max(0.0, (timestamp_ms - self._since_ms) / span_ms)))

    def done(self) -> None:
        """Remove the bar."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self, part: float) -> None:
        full = round(part * WIDTH)
        rate = self._records / max(0.001, time.monotonic() - self._begun_s)
        bar = "#" * full + "." * (WIDTH - full)
        sys.stderr.write(f"\r{self._what} [{bar}] {part:4.0%}  {self._records:,} records, {rate:,.0f}/s\x1b[K")
        sys.stderr.flush()
