"""Times as records carry them: any number of milliseconds, for a client's clock may show anything."""

from __future__ import annotations

from slacktide.schemas.bounds import TIME_MS_MAX


def clamped_ms(time_ms: int) -> int:
    """The nearest time that can be written as a date, from 1970 to the year 9999, in UTC epoch milliseconds."""
    return min(max(0, time_ms), TIME_MS_MAX)
