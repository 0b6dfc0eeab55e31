"""Dead letters that wait for Kafka."""

from collections import deque

from slacktide.streams.records import Out

WAITING_BYTES_MAX = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024


class Letters:
    """Dead letters in order, at most a few megabytes. The oldest are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[Out] = deque()
        self._bytes = 0

    def add(self, letter: Out) -> None:
        """Add a dead letter. Drop the oldest if full."""
        self._waiting.append(letter)
        self._bytes += size_of(letter)
        while self._bytes > WAITING_BYTES_MAX:
            self._bytes -= size_of(self._waiting.popleft())

    def some(self) -> list[Out]:
        """Return the oldest, up to about one batch."""
        found: list[Out] = []
        size = 0
        for letter in self._waiting:
            size += size_of(letter)
            if found and size > BATCH_BYTES:
                break
            found.append(letter)
        return found

    def sent(self, letters: list[Out]) -> None:
        """Remove sent letters. Some may have been dropped meanwhile."""
        for letter in letters:
            if self._waiting and self._waiting[0] is letter:
                self._bytes -= size_of(self._waiting.popleft())


def size_of(out: Out) -> int:
    """Return the bytes of a record's value."""
    return len(out.value or b"")
