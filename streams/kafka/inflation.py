"""Inflates compressed batches up to a limit: a megabyte may hold gigabytes of zeros."""

from __future__ import annotations

import threading
import zlib
from typing import Any, Final

import cramjam

INFLATED_BYTES_MAX: Final = 16 << 20
"""Per batch. By default Kafka accepts compressed batches of 1 MiB. JSON shrinks to about a tenth."""

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_GZIP_BITS = 16 + zlib.MAX_WBITS
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_BYTES = 16
_GUESS, _GUESS_BYTES = 16, 64 << 10
"""The usual largest factor: a buffer for the largest possible result costs a millisecond."""
_HELD_BYTES_MAX = 1 << 20


class _Room(threading.local):
    """A thread's buffer, which is reused: a new one is cleared first, page by page."""

    held = bytearray()

    def of(self, room_bytes: int) -> bytearray:
        """Return a buffer of at least this size."""
        if room_bytes > _HELD_BYTES_MAX:
            return bytearray(room_bytes)
        if len(self.held) < room_bytes:
            self.held = bytearray(room_bytes)
        return self.held


_room = _Room()


class UnreadableError(Exception):
    """A batch of records cannot be read; the text has the reason."""


def inflated(codec: int, packed: bytes, limit_bytes: int = INFLATED_BYTES_MAX) -> bytes:
    """Inflate a batch's records, compressed by Kafka's ``codec`` number.

    Raises:
        UnreadableError: the codec is unknown, or the data is damaged or too large.
    """
    try:
        match codec:
            case 1:
                return _gzip(packed, limit_bytes)
            case 2:
                return _snappy(packed, limit_bytes)
            case 3:
                return _framed(cramjam.lz4, packed, limit_bytes)
            case 4:
                return _framed(cramjam.zstd, packed, limit_bytes)
    except (zlib.error, cramjam.DecompressionError, OverflowError, MemoryError) as exc:
        raise UnreadableError(f"its {NAMES[codec]} data is damaged: {exc}") from exc
    raise UnreadableError(f"its compression codec {codec} is unknown")


def _gzip(packed: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left_bytes = limit_bytes
    while packed:
        member = zlib.decompressobj(_GZIP_BITS)
        part = member.decompress(packed, left_bytes + 1)
        left_bytes -= len(part)
        if left_bytes < 0:
            raise _too_much(GZIP, limit_bytes)
        if not member.eof:
            raise UnreadableError("its gzip data is damaged: it ends too early")
        parts.append(part)
        packed = member.unused_data
    return b"".join(parts)


def _snappy(packed: bytes, limit_bytes: int) -> bytes:
    """Inflate Snappy, which begins with the inflated size. Java's clients write blocks of it behind a header."""
    blocks = _blocks(packed) if packed.startswith(_XERIAL) else [packed]
    size_bytes = sum(cramjam.snappy.decompress_raw_len(block) for block in blocks)
    if size_bytes > limit_bytes:
        raise _too_much(SNAPPY, limit_bytes)
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _blocks(packed: bytes) -> list[bytes]:
    blocks: list[bytes] = []
    at = _XERIAL_BYTES
    while at < len(packed):
        begin = at + 4
        end = begin + int.from_bytes(packed[at:begin], "big")
        if end > len(packed):
            raise UnreadableError("its snappy data is damaged: it ends too early")
        blocks.append(packed[begin:end])
        at = end
    return blocks


def _framed(codec: Any, packed: bytes, limit_bytes: int) -> bytes:
    """Inflate lz4 or zstd, which may lack the inflated size: retry with a larger buffer if it is full."""
    guess_bytes = _GUESS * len(packed) + _GUESS_BYTES
    for room_bytes in (guess_bytes, _GUESS * guess_bytes, limit_bytes):
        room = _room.of(min(room_bytes, limit_bytes))
        try:
            size_bytes: int = codec.decompress_into(packed, room)
        except cramjam.DecompressionError as exc:
            if _FULL not in str(exc):
                raise
        else:
            if size_bytes > limit_bytes:
                break
            return bytes(memoryview(room)[:size_bytes])
    raise _too_much(LZ4 if codec is cramjam.lz4 else ZSTD, limit_bytes)


_FULL = "failed to write whole buffer"


def _too_much(codec: int, limit_bytes: int) -> UnreadableError:
    return UnreadableError(f"its {NAMES[codec]} data inflates to more than {limit_bytes} bytes")
