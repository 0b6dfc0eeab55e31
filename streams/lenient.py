"""Records whose header names are no UTF-8 are read without their headers.

The client gives up on them: one such record would stop every worker, and every agent, that reads
its partition, for ever. The client has no setting for it, so its reader of fetched bytes is
replaced, by each door to Kafka: the fast one first, and only where that fails the one in Python,
which can be taught. Of aiokafka 0.14.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy
from aiokafka.record.util import decode_varint


def install() -> None:
    """Let the client read such records; at most once has an effect."""
    fetcher.MemoryRecords = _Records


class _Records:
    """The batches of one fetch."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._batches = MemoryRecords(raw)
        self._number = -1

    def has_next(self) -> bool:
        has: bool = self._batches.has_next()
        return has

    def size_in_bytes(self) -> int:
        size: int = self._batches.size_in_bytes()
        return size

    def next_batch(self) -> _Batch:
        self._number += 1
        return _Batch(self._batches.next_batch(), self._raw, self._number)


class _Batch:
    """One of them: as the client's own, but for how its records are read."""

    def __init__(self, batch: Any, raw: bytes, number: int) -> None:
        self._batch = batch
        self._raw = raw
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter(list(self._batch))  # at once: one by one each record would pay for the care
        except UnicodeDecodeError:
            return iter(self._again())

    def _again(self) -> _PatientBatch:
        batches = _MemoryRecordsPy(self._raw)
        for _ in range(self._number):
            batches.next_batch()
        return _PatientBatch(batches._next_slice)  # noqa: SLF001 - the bytes of the batch that comes next


class _PatientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]  # the client calls it final
    _pos: int

    def _read_msg(self, *_: Any) -> Any:
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            return self._without_headers()

    def _without_headers(self) -> Any:
        length, pos = decode_varint(self._buffer, self._pos)
        end = pos + length
        _, pos = decode_varint(self._buffer, pos)  # attributes: none are in use
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
