"""Follows topics forever, and reconnects after any error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.tail_reader import TailReader
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

NOTHING_YET = "the topics are not read yet"
RETRY_S, RETRY_MAX_S = 0.5, 5.0
PAUSED_S = 5.0
"""After a pause this long, old records would count as new: the reader reconnects."""


class Monotonic(Protocol):
    """A clock that never goes back."""

    def mono_ns(self) -> int:
        """Return nanoseconds since some instant."""


class Following:
    """Follows topics by one reader, which is not shared; ``away``: the log line's text about outages."""

    def __init__(self, reader: TailReader, *, away: str, clock: Monotonic) -> None:
        self.trouble = NOTHING_YET
        """Why nothing is read; "": topics are read."""
        self._reader = reader
        self._away = away
        self._clock = clock

    async def run(self, begun: Callable[[], None], receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """Run forever.

        ``begun`` is called after each connection: earlier records may be outdated. ``receive`` takes records, and their
        time in monotonic seconds.
        """
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        try:
            while True:
                try:
                    await self._reader.connect()
                    begun()
                    if self.trouble:
                        log.info("the topics are read")
                    self.trouble = ""
                    backoff.reset()
                    await self._read(receive)
                except LogError as exc:
                    if self.trouble in ("", NOTHING_YET):
                        log.warning("Kafka is unreachable: %s", self._away, extra={"why": str(exc)})
                    self.trouble = str(exc)
                    await asyncio.sleep(backoff.next_s())
        finally:
            await self._reader.close()

    async def _read(self, receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """Read until this process has paused.

        Raises:
            LogError: Kafka is unreachable.
        """
        looked_s = self._clock.mono_ns() / 1e9
        while True:
            records = await self._reader.read()
            now_s = self._clock.mono_ns() / 1e9
            if now_s > looked_s + PAUSED_S:
                return
            looked_s = now_s
            await receive(records, now_s)
