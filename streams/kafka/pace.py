"""Sets how often a reader fetches: once a second while idle, and at intervals where records gather."""

from __future__ import annotations

from typing import Final

from aiokafka import AIOKafkaConsumer

IDLE_AFTER_S: Final = 1.0
IDLE_WAIT_MS: Final = 1_000
"""Kafka holds a fetch this long, and answers as soon as there is a record."""
LOOK_S: Final = 0.2
"""How often the client checks for other work."""
LATER_S: Final = 0.5
"""So long after a held fetch is answered, so that it checks once."""
GATHER_BYTES: Final = 1 << 20
"""A reader whose records gather is answered sooner if there are so many."""


class Pace:
    """The pace of one consumer; ``fetch_wait_ms``: how long the broker may hold a fetch while records arrive.

    ``gather_ms``: the broker holds each fetch so long, though there are records; 0: it does not.
    """

    def __init__(self, fetch_wait_ms: int, gather_ms: int = 0) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._gather_ms = gather_ms
        self._empty_s = 0.0

    def polled(self, consumer: AIOKafkaConsumer[bytes, bytes], *, found: bool, wait_s: float) -> None:
        """Count a poll that waited ``wait_s`` at most, and set the client's fetch wait."""
        self._empty_s = 0.0 if found else self._empty_s + wait_s
        fetcher = consumer._fetcher  # noqa: SLF001 - it has no public method
        if self._gather_ms:
            wait_ms, fetcher._fetch_min_bytes = self._gather_ms, GATHER_BYTES  # noqa: SLF001
            look_s = wait_ms / 1_000 + LATER_S
        elif self._empty_s > IDLE_AFTER_S - 0.001:
            wait_ms, look_s = max(self._fetch_wait_ms, IDLE_WAIT_MS), IDLE_WAIT_MS / 1_000 + LATER_S
        else:
            wait_ms, look_s = self._fetch_wait_ms, LOOK_S
        fetcher._fetch_max_wait_ms, fetcher._fetcher_timeout = wait_ms, look_s  # noqa: SLF001
