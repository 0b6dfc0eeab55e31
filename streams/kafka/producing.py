"""Writes produce requests in pieces, without copies.

The client joins the bytes of each level of a request into the next, and twice more before it writes: it copies all
bytes eight times. A worker writes more than a megabyte per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from aiokafka.protocol import produce
from aiokafka.protocol.types import Int16, Int32, Schema, String

_TEXT: Final = String("utf-8")
_PART: Final = Struct(">ii")
_ORIGINAL: Final = produce.ProduceRequest_v3.SCHEMA
"""Of all versions from 3 on: one object."""


class Pieces:
    """Bytes to write one after the other. The client prepends others with ``+``, and calls ``len``."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        """Return the number of bytes."""
        return sum(map(len, self.parts))

    def __radd__(self, before: bytes) -> Pieces:
        """Return the pieces with other bytes before them."""
        return Pieces([before, *self.parts])


class PiecesWriter:
    """The writer of a connection, which also accepts ``Pieces``."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes | Pieces) -> None:
        """Write bytes, or pieces without joining them."""
        if isinstance(data, Pieces):
            self._writer.writelines(data.parts)
        else:
            self._writer.write(data)

    def __getattr__(self, name: str) -> Any:
        """Return the writer's attributes."""
        return getattr(self._writer, name)


class ProduceSchema(Schema):  # type: ignore[misc]  # the client has no types
    """The schema of a produce request from version 3 on. Only encoding differs from the client's."""

    def encode(self, item: Sequence[Any]) -> Pieces:
        """Encode a request.

        ``item``: transactional id, acks, timeout in milliseconds, and of each topic its name and ``(partition,
        records)`` pairs. Records are bytes, or a tuple of them.
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
    """Install the schema in all versions of the request that share it."""
    schema = ProduceSchema(*zip(_ORIGINAL.names, _ORIGINAL.fields, strict=True))
    for name in dir(produce):
        kind = getattr(produce, name)
        if name.startswith("ProduceRequest_v") and kind.SCHEMA is _ORIGINAL:
            kind.SCHEMA = schema
