"""Topics followed for ever by one reader, connected anew after any trouble."""

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
"""Who did not read for so long would take old records for new ones: it connects anew."""


class Monotonic(Protocol):
    """A clock that never goes back."""

    def mono_ns(self) -> int:
        """Nanoseconds since some instant."""


class Following:
    """One reader.

    Args:
        reader: of the topics; nobody else's.
        away: what it means that Kafka is unreachable, for its log line.
        clock: the time.

    """

    def __init__(self, reader: TailReader, *, away: str, clock: Monotonic) -> None:
        self.trouble = NOTHING_YET
        """Why nothing is read; "" where it is."""
        self._reader = reader
        self._away = away
        self._clock = clock

    async def run(self, begun: Callable[[], None], receive: Callable[[list[Record], float], Awaitable[None]]) -> None:
        """For ever.

        Args:
            begun: called after each connection: what was read before may be out of date.
            receive: takes what was read, and when, in monotonic seconds.

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
        """Until this process has paused.

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
