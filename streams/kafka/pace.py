"""How often a reader of what seldom changes asks: where nothing has come for a while, once a second."""

from __future__ import annotations

from typing import Final

from aiokafka import AIOKafkaConsumer

IDLE_POLLS: Final = 5
IDLE_WAIT_MS: Final = 1_000
"""Kafka holds a fetch so long, and answers it as soon as there is a record."""
LOOK_S: Final = 0.2
"""The client looks so often whether there is something to do beside what wakes it."""


class Pace:
    """Of one consumer; ``fetch_wait_ms``: how long the broker may hold a fetch while something comes."""

    def __init__(self, fetch_wait_ms: int) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._empty_polls = 0

    def polled(self, consumer: AIOKafkaConsumer[bytes, bytes], *, found: bool) -> None:
        """Count a poll; the client takes what follows from it for each of its fetches."""
        self._empty_polls = 0 if found else self._empty_polls + 1
        idle = self._empty_polls >= IDLE_POLLS
        fetcher = consumer._fetcher  # noqa: SLF001 - it has no other face
        fetcher._fetch_max_wait_ms = IDLE_WAIT_MS if idle else self._fetch_wait_ms  # noqa: SLF001
        fetcher._fetcher_timeout = IDLE_WAIT_MS / 1_000 if idle else LOOK_S  # noqa: SLF001
