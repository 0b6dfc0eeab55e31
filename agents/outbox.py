"""Records that wait to be sent to Kafka, so that no caller waits for it. Above a limit, the oldest are dropped."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Literal

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record, dead_letter

log = logging.getLogger(__name__)

WAITING_BYTES_MAX = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024
WAITING_MAX = 10_000
AT_ONCE = 200
GATHER_S, LAST_S = 0.2, 3.0
RETRY_S, RETRY_MAX_S = 1.0, 5.0


class Letters:
    """Dead letters in order, at most a few megabytes. The oldest are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[Out] = deque()
        self._bytes = 0

    def add(self, letter: Out) -> None:
        """Add a dead letter. Drop the oldest if full."""
        self._waiting.append(letter)
        self._bytes += _size(letter)
        while self._bytes > WAITING_BYTES_MAX:
            self._bytes -= _size(self._waiting.popleft())

    def some(self) -> list[Out]:
        """Return the oldest, up to about one batch."""
        found: list[Out] = []
        size = 0
        for letter in self._waiting:
            size += _size(letter)
            if found and size > BATCH_BYTES:
                break
            found.append(letter)
        return found

    def sent(self, letters: list[Out]) -> None:
        """Remove sent letters. Some may have been dropped meanwhile."""
        for letter in letters:
            if self._waiting and self._waiting[0] is letter:
                self._bytes -= _size(self._waiting.popleft())


def _size(out: Out) -> int:
    return len(out.value or b"")


class Outbox:
    """Records of one source for these topics. ``dropped`` is called for each dropped record; the log has the first."""

    def __init__(
        self,
        bootstrap: Cluster,
        topics: tuple[str, ...],
        now_ms: Callable[[], int],
        *,
        source: str,
        acks: Literal["all", "1"] = "all",
        dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self.away = ""
        """Why Kafka does not have all records; "": it has."""
        self._sender = Sender(bootstrap, client_id=f"slacktide-{source}", acks=acks)
        self._topics, self._source, self._now_ms, self._dropped = topics, source, now_ms, dropped
        self._waiting: deque[Out] = deque()
        self._letters = Letters()
        self._some = asyncio.Event()
        self._full = False

    def put(self, out: Out) -> None:
        """Queue a record."""
        self._waiting.append(out)
        self._some.set()
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._dropped()
            if not self._full:
                log.warning("too many records wait for Kafka: dropping the oldest", extra={"for": self._source})
            self._full = True

    def to_dead_letter(self, record: Record, reason: str) -> None:
        """Queue a dead letter for an invalid record."""
        self._letters.add(dead_letter(record, reader=self._source, reason=reason, now_ms=self._now_ms()))
        self._some.set()

    async def run(self) -> None:
        """Send until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            await self._some.wait()
            try:
                self._some.clear()
                await self._send()
                self.away, self._full = "", False
                backoff.reset()
                await asyncio.sleep(GATHER_S)
            except LogError as exc:
                if not self.away:
                    log.warning("Kafka is unreachable", extra={"for": self._source, "why": str(exc)})
                self.away = str(exc)
                self._some.set()
                await asyncio.sleep(backoff.next_s())

    async def close(self) -> None:
        """Send the rest at shutdown, and disconnect."""
        try:
            async with asyncio.timeout(LAST_S):
                await self._send()
        except (LogError, TimeoutError) as exc:
            log.warning("not all records are published", extra={"records": len(self._waiting), "why": str(exc)})
        finally:
            await self._sender.close()

    async def _send(self) -> None:
        while True:
            some, letters = list(islice(self._waiting, AT_ONCE)), self._letters.some()
            if not some and not letters:
                return
            if not self._sender.connected:
                await self._sender.connect(self._topics)
            await self._sender.send([*some, *letters])
            self._letters.sent(letters)
            for one in some:
                if self._waiting and self._waiting[0] is one:  # unless it was dropped meanwhile
                    self._waiting.popleft()
