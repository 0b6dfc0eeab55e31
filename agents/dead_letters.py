"""What is laid aside of records that cannot be used, and waits to be sent."""

from __future__ import annotations

from base64 import b64encode
from collections import deque

from slacktide.agents.kafka import Out, Record
from slacktide.schemas.codec import encode
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.headers import headers
from slacktide.schemas.topics import DEAD_LETTER

TEXT_BYTES_MAX = 1_024
HEADERS_MAX = 32
WAITING_BYTES_MAX = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024


def dead_letter(record: Record, *, reader: str, reason: str, now_ms: int) -> Out:
    """A record that its reader cannot use, with where it came from; never itself too large to be sent."""
    value = record.value or b""
    letter = DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=reason[:TEXT_BYTES_MAX],
        reader=reader,
        refused_ms=now_ms,
        key=None if record.key is None else _text(record.key),
        headers={name[:TEXT_BYTES_MAX]: _text(raw or b"") for name, raw in record.headers[:HEADERS_MAX]},
        value_base64=None if record.value is None else b64encode(value[:VALUE_BYTES_MAX]).decode(),
        value_bytes=len(value),
    )
    event_id = f"{record.topic}/{record.partition}/{record.offset}"
    return Out(
        topic=DEAD_LETTER.name,
        key=(record.key or b"")[:TEXT_BYTES_MAX],
        value=encode(letter),
        headers=headers(
            kind=DEAD_LETTER.name,
            source=reader,
            subject=letter.key or "",
            event_id=event_id,
            event_ms=now_ms,
        ),
    )


class Letters:
    """Dead letters in order; of a flood the last few megabytes."""

    def __init__(self) -> None:
        self._waiting: deque[Out] = deque()
        self._bytes = 0

    def add(self, letter: Out) -> None:
        """Keep one, at the cost of the oldest."""
        self._waiting.append(letter)
        self._bytes += _size(letter)
        while self._bytes > WAITING_BYTES_MAX:
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


def _size(out: Out) -> int:
    return len(out.value or b"")


def _text(raw: bytes) -> str:
    return raw[:TEXT_BYTES_MAX].decode(errors="backslashreplace")
