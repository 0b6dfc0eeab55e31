"""Sets how often a reader of rarely changing topics fetches: once a second while idle."""

from __future__ import annotations

from typing import Final

from aiokafka import AIOKafkaConsumer

IDLE_POLLS: Final = 5
IDLE_WAIT_MS: Final = 1_000
"""Kafka holds a fetch this long, and answers as soon as there is a record."""
LOOK_S: Final = 0.2
"""How often the client checks for other work."""


class Pace:
    """The pace of one consumer; ``fetch_wait_ms``: how long the broker may hold a fetch while records arrive."""

    def __init__(self, fetch_wait_ms: int) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._empty_polls = 0

    def polled(self, consumer: AIOKafkaConsumer[bytes, bytes], *, found: bool) -> None:
        """Count a poll, and set the client's fetch wait."""
        self._empty_polls = 0 if found else self._empty_polls + 1
        idle = self._empty_polls >= IDLE_POLLS
        fetcher = consumer._fetcher  # noqa: SLF001 - it has no public method
        fetcher._fetch_max_wait_ms = IDLE_WAIT_MS if idle else self._fetch_wait_ms  # noqa: SLF001
        fetcher._fetcher_timeout = IDLE_WAIT_MS / 1_000 if idle else LOOK_S  # noqa: SLF001
