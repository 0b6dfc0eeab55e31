"""Inflates and parses the records of a batch with a valid checksum, within bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy, _DefaultRecordPy

# The client's C version reads beyond the buffer's end if a length is wrong, which ends the process.
from aiokafka.record.util import decode_varint_py as decode_varint

from slacktide.streams.kafka.inflation import INFLATED_BYTES_MAX, UnreadableError, inflated

RECORD_BYTES: Final = 400
"""The client's memory per record, beside its key, its value and its headers."""
HEADER_BYTES: Final = 100
"""The client's memory per header. On the wire an empty one is two bytes."""
BATCH_MEMORY_MAX: Final = 2 * INFLATED_BYTES_MAX
SMALL_BYTES: Final = 1 << 20
"""Headers of smaller batches are too few to count."""

HEADER_BYTES_OF_BATCH: Final = 61
_COUNT_AT = 57
_CODEC_AT, _CODEC = 22, 0x07


def records_of(batch: DefaultRecordBatch, raw: memoryview) -> Sequence[Any]:
    """Return all records of a batch; one whose header names are not UTF-8 is read without its headers.

    Raises:
        UnreadableError: it does not inflate, takes too much memory, or its records are damaged.
    """
    count = int.from_bytes(raw[_COUNT_AT:HEADER_BYTES_OF_BATCH], "big", signed=True)
    codec = raw[_CODEC_AT] & _CODEC
    if codec:
        raw = memoryview(_plain(raw, codec))
        batch = DefaultRecordBatch(raw)
    try:
        _check_memory(raw, count)
        try:
            return list(batch)
        except UnicodeDecodeError:
            return list(_WithoutHeaders(raw))
    except UnreadableError:
        raise
    except Exception as exc:
        raise UnreadableError(f"its records are damaged: {exc}") from exc


def _plain(raw: memoryview, codec: int) -> bytes:
    head = bytearray(raw[:HEADER_BYTES_OF_BATCH])
    head[_CODEC_AT] &= ~_CODEC
    return bytes(head) + inflated(codec, bytes(raw[HEADER_BYTES_OF_BATCH:]))


def _check_memory(raw: memoryview, count: int) -> None:
    memory_bytes = len(raw) + RECORD_BYTES * count
    if memory_bytes <= BATCH_MEMORY_MAX and len(raw) > SMALL_BYTES:
        memory_bytes += HEADER_BYTES * _headers(raw, count)
    if memory_bytes > BATCH_MEMORY_MAX:
        raise UnreadableError(f"its {count} records and their headers take more than {BATCH_MEMORY_MAX} bytes")


def _headers(raw: memoryview, count: int) -> int:
    buffer, pos, headers = bytearray(raw), HEADER_BYTES_OF_BATCH, 0
    for _ in range(count):
        length, pos = decode_varint(buffer, pos)
        end = pos + length
        for _ in range(3):  # attributes, time, offset
            _, pos = decode_varint(buffer, pos)
        for _ in range(2):  # key, value
            length, pos = decode_varint(buffer, pos)
            pos += max(0, length)
        headers += max(0, decode_varint(buffer, pos)[0])
        pos = end
    return headers


class _WithoutHeaders(_DefaultRecordBatchPy):  # type: ignore[misc]  # the client calls it final
    """Reads a record without its headers if their names are not UTF-8."""

    _pos: int

    def _read_msg(self, *_: Any) -> Any:
        try:
            return super()._read_msg(decode_varint)
        except UnicodeDecodeError:
            return self._without_headers()

    def _without_headers(self) -> Any:
        length, pos = decode_varint(self._buffer, self._pos)
        end = pos + length
        _, pos = decode_varint(self._buffer, pos)  # attributes: Kafka uses none
        since_ms, pos = decode_varint(self._buffer, pos)
        by_broker = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp_ms = self.max_timestamp if by_broker else self.first_timestamp + since_ms
        place, pos = decode_varint(self._buffer, pos)
        key, pos = self._bytes(pos)
        value, _ = self._bytes(pos)
        self._pos = end
        return _DefaultRecordPy(self.base_offset + place, timestamp_ms, self.timestamp_type, key, value, [])

    def _bytes(self, pos: int) -> tuple[bytes | None, int]:
        length, pos = decode_varint(self._buffer, pos)
        return (None, pos) if length < 0 else (bytes(self._buffer[pos : pos + length]), pos + length)
