"""What waits to be sent, in memory and bounded: the newest sample, and dead letters."""

from __future__ import annotations

import asyncio
from collections import deque

from slacktide.agents.kafka import Out
from slacktide.schemas.sample import NodeSample

LETTERS_BYTES_MAX = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024


class Newest:
    """Holds one sample: the newest that was not sent."""

    def __init__(self) -> None:
        self._sample: NodeSample | None = None
        self._there = asyncio.Event()

    def put(self, sample: NodeSample) -> bool:
        """Hold this one; whether an older one was given up for it."""
        given_up, self._sample = self._sample is not None, sample
        self._there.set()
        return given_up

    def put_back(self, sample: NodeSample) -> bool:
        """It was not sent after all; whether it is given up, because a newer one is here."""
        if self._sample is not None:
            return True
        self.put(sample)
        return False

    async def wait(self) -> None:
        """Until there is one."""
        await self._there.wait()

    def take(self) -> NodeSample:
        """Take it out."""
        sample, self._sample = self._sample, None
        assert sample is not None, "nothing was put"
        self._there.clear()
        return sample


class Letters:
    """Dead letters in order; of a flood the last few megabytes."""

    def __init__(self) -> None:
        self._waiting: deque[Out] = deque()
        self._bytes = 0

    def add(self, letter: Out) -> None:
        """Keep one, at the cost of the oldest."""
        self._waiting.append(letter)
        self._bytes += _size(letter)
        while self._bytes > LETTERS_BYTES_MAX:
            self._bytes -= _size(self._waiting.popleft())

    def some(self) -> list[Out]:
        """The oldest, about as many as one batch carries."""
        found: list[Out] = []
        size = 0
        for letter in self._waiting:
            size += _size(letter)
            if found and size > BATCH_BYTES:
                break
            found.append(letter)
        return found

    def sent(self, letters: list[Out]) -> None:
        """The log has these; some may have been given up meanwhile."""
        for letter in letters:
            if self._waiting and self._waiting[0] is letter:
                self._bytes -= _size(self._waiting.popleft())


def _size(letter: Out) -> int:
    return len(letter.value or b"")
