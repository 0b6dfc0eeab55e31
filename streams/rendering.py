"""PURE: a record as Kafka's batches hold it, from the length of its key to its last header.

What many records share is put together once. What goes before depends on a record's place in its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from slacktide.schemas.headers import Header, Headers
from slacktide.streams.records import Out


def rendered(key: bytes, value: bytes | None, headers: bytes) -> bytes:
    """Give a record.

    Args:
        key: made by ``rendered_key``.
        value: None: a tombstone.
        headers: made by ``rendered_headers``.

    """
    pieces = (key, varint(-1), headers) if value is None else (key, varint(len(value)), value, headers)
    return b"".join(pieces)


def rendered_key(key: bytes | None) -> bytes:
    """Give a record's key."""
    return varint(-1) if key is None else varint(len(key)) + key


def rendered_headers(headers: Sequence[Header]) -> bytes:
    """Give a record's headers."""
    parts = [varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        parts += (varint(len(text)), text, varint(len(value)), value)
    return b"".join(parts)


@lru_cache(maxsize=1 << 14)
def varint(number: int) -> bytes:
    """Give a number as records have it: zigzag, seven bits a byte."""
    number = number << 1 ^ number >> 63
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def headers_in(raw: bytes) -> Headers:
    """Read a record's headers from bytes that were checked to be as long as they state.

    Args:
        raw: from the count of headers on.

    Returns:
        The headers; none where a name is no UTF-8.

    """
    found: list[Header] = []
    count, at = varint_at(raw, 0)
    for _ in range(count):
        size, at = varint_at(raw, at)
        name = raw[at : at + size]
        at += size
        size, at = varint_at(raw, at)
        value = raw[at : at + size] if size >= 0 else None
        at += max(0, size)
        try:
            found.append((name.decode(), value))  # type: ignore[arg-type]  # as the client has it: None, though seldom
        except UnicodeDecodeError:
            return ()
    return tuple(found)


def varint_at(raw: bytes, at: int) -> tuple[int, int]:
    """Read a varint; where it ends."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7


class RenderedOut(Out, frozen=True, kw_only=True, gc=False):
    """A record whose headers are rendered already: ``headers`` is empty, ``written_headers`` reads them."""

    key: bytes
    value: bytes
    tail: bytes
    """Its headers."""

    def written_headers(self) -> Headers:
        """Read them back."""
        return headers_in(self.tail)


def record_of(out: Out) -> bytes:
    """Give a record that is to be written."""
    if isinstance(out, RenderedOut):
        key, value = out.key, out.value
        return b"".join((varint(len(key)), key, varint(len(value)), value, out.tail))
    return rendered(rendered_key(out.key), out.value, rendered_headers(out.headers))
