"""Produce requests in pieces, which go to the socket as they are.

The client joins the bytes of each level of a request into those of the level above, and twice more before it writes:
all that is written is copied eight times. A worker writes more than a megabyte in a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from aiokafka.protocol import produce
from aiokafka.protocol.types import Int16, Int32, Schema, String

_TEXT: Final = String("utf-8")
_PART: Final = Struct(">ii")
"""Partition, and length of its records."""
_ORIGINAL: Final = produce.ProduceRequest_v3.SCHEMA
"""Of all versions from 3 on: one object."""


class Pieces:
    """Bytes to be written one after the other. The client puts others before them with ``+``, and asks their length."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        """Return how many bytes there are."""
        return sum(map(len, self.parts))

    def __radd__(self, before: bytes) -> Pieces:
        """Return the same with other bytes before them."""
        return Pieces([before, *self.parts])


class PiecesWriter:
    """The writer of a connection, which takes ``Pieces``, too."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes | Pieces) -> None:
        """Write bytes, or pieces without joining them."""
        if isinstance(data, Pieces):
            self._writer.writelines(data.parts)
        else:
            self._writer.write(data)

    def __getattr__(self, name: str) -> Any:
        """Give all else as the writer has it."""
        return getattr(self._writer, name)


class ProduceSchema(Schema):  # type: ignore[misc]  # the client has no types
    """The schema of a produce request of version 3 or newer. Decoding and showing are the client's."""

    def encode(self, item: Sequence[Any]) -> Pieces:
        """Give a request's bytes.

        Args:
            item: transactional id, acks, timeout in milliseconds, and of each topic its name and
                ``(partition, records)`` pairs. Records are bytes, or a tuple of them.

        """
        transactional_id, acks, timeout_ms, topics = item
        pieces = [_TEXT.encode(transactional_id) + Int16.encode(acks) + Int32.encode(timeout_ms)]
        pieces.append(Int32.encode(len(topics)))
        for topic, parts in topics:
            pieces.append(_TEXT.encode(topic) + Int32.encode(len(parts)))
            for partition, records in parts:
                its = records if isinstance(records, tuple) else (records,)
                pieces += _PART.pack(partition, sum(map(len, its))), *its
        return Pieces(pieces)


def install() -> None:
    """Let all versions of the request that have this schema encode by it."""
    schema = ProduceSchema(*zip(_ORIGINAL.names, _ORIGINAL.fields, strict=True))
    for name in dir(produce):
        kind = getattr(produce, name)
        if name.startswith("ProduceRequest_v") and kind.SCHEMA is _ORIGINAL:
            kind.SCHEMA = schema
