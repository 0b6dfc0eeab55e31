"""Prometheus metrics of the console."""

import math
from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from slacktide.deploy.console.history.view import Bounds
from slacktide.streams.records import Record

RECORDS = Counter("slacktide_console_records", "Records read from Kafka.", ["topic"])
DROPPED = Counter("slacktide_console_minutes_dropped", "Minutes dropped because the history file could not be written.")
LAG = Gauge(
    "slacktide_console_lag_seconds", "Seconds from the newest recorded moment to now. NaN: nothing is recorded yet."
)
TROUBLE = Gauge("slacktide_console_trouble", "1 while it cannot read Kafka or write the history.")
SIZE = Gauge("slacktide_console_history_bytes", "Size of the history file.")
SIZE_MAX = Gauge("slacktide_console_history_limit_bytes", "Size at which the oldest data is dropped.")
VIEWERS = Gauge("slacktide_console_viewers", "Clients that follow live figures.")
ANSWER = Histogram("slacktide_console_answer_seconds", "Seconds to compute an answer for a page.", ["question"])


def count(records: Iterable[Record]) -> None:
    """Count read records."""
    for topic, number in Tally(record.topic for record in records).items():
        RECORDS.labels(topic).inc(number)


def show(bounds: Bounds, now_ms: int, trouble: str) -> None:
    """Set the extent of the history, and whether it is being recorded."""
    LAG.set(math.nan if bounds.newest_ms is None else (now_ms - bounds.newest_ms) / 1_000)
    TROUBLE.set(bool(trouble))
    SIZE.set(bounds.size_bytes)
    SIZE_MAX.set(bounds.size_bytes_max)
