"""How fetched bytes become records, so that a batch that cannot be read costs itself only.

The client raises at such a batch, at each fetch: one of them would stop every worker and agent that reads its
partition. It has no setting for that, so ``patches`` replaces its reader of fetched bytes.

A batch is unreadable when its checksum or structure is wrong, when its format is older than Kafka 0.11, when it does
not inflate, or when it would take too much memory. One record then stands for it, whose value is an
``UnreadableBatch``. Aborted transactions are not left out: nobody here reads committed records only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch

from slacktide.schemas.unreadable import UnreadableBatch
from slacktide.streams.kafka.inflation import INFLATED_BYTES_MAX, UnreadableError
from slacktide.streams.kafka.payload import RECORD_BYTES, records_of

HEADERS_MAX: Final = 64
"""Kept of a record."""
FETCH_BYTES_MAX: Final = INFLATED_BYTES_MAX
"""Read of one fetch and partition. What lies behind is fetched again, once this was taken."""

_FRAME_BYTES, _HEADER_BYTES = 12, 61
_LENGTH_AT, _MAGIC_AT, _DELTA_AT, _COUNT_AT = 8, 16, 23, 57
_FORMAT = 2
"""Of batches, since Kafka 0.11."""


class FetchedBytes:
    """What one fetch brought of one partition. In place of the client's ``MemoryRecords``."""

    def __init__(self, raw: bytes | None) -> None:
        self.raw = raw or b""

    def has_next(self) -> bool:
        """Whether there is something to read."""
        return bool(self.raw)

    def size_in_bytes(self) -> int:
        """How much there is."""
        return len(self.raw)


class FetchedRecords:
    """The records of one fetch of one partition, in order, and the position behind those that were taken.

    In place of the client's ``PartitionRecords``, an iterator whose position the client reads after each record.
    """

    def __init__(self, place: TopicPartition, fetched: FetchedBytes, _: object, position: int, *__: object) -> None:
        self.next_fetch_offset = position
        self._place = place
        self._records = self._read(fetched.raw)

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def __next__(self) -> Any:
        return next(self._records)

    def _read(self, raw: bytes) -> Iterator[Any]:
        topic, partition = self._place
        left_bytes = FETCH_BYTES_MAX
        for frame in _frames(raw):
            position = self.next_fetch_offset
            read = _read(frame, position)
            if isinstance(read, _Unreadable):
                self.next_fetch_offset = read.last + 1
                yield read.record(self._place, position)
                if frame.following() is None:
                    return  # the broker finds the next batch
                continue
            for record in read.records:
                offset = record.offset
                if not self.next_fetch_offset <= offset <= read.last:
                    continue  # the position may lie within a batch
                self.next_fetch_offset = offset + 1
                key, value = record.key, record.value
                left_bytes -= RECORD_BYTES + len(value or b"")
                yield ConsumerRecord(
                    topic,
                    partition,
                    offset,
                    record.timestamp,
                    record.timestamp_type,
                    key,
                    value,
                    None,
                    -1 if key is None else len(key),
                    -1 if value is None else len(value),
                    tuple(record.headers[:HEADERS_MAX]),
                )
            self.next_fetch_offset = read.last + 1
            if left_bytes < 0:
                return


class _Frame(NamedTuple):
    """One batch as it was fetched."""

    raw: memoryview
    behind: memoryview
    """What was fetched behind it."""
    whole: bool

    def following(self) -> int | None:
        """Offset of the first record of the batch behind it; None: nothing behind it is a batch with its checksum.

        Where the length is damaged, anything may stand there.
        """
        end = _end(self.behind, 0)
        if end is None or end < _HEADER_BYTES or self.behind[_MAGIC_AT] != _FORMAT:
            return None
        batch = DefaultRecordBatch(self.behind[:end])
        return batch.base_offset if batch.validate_crc() else None


class _Batch(NamedTuple):
    """Its records."""

    records: Sequence[Any]
    last: int
    """Offset of its last record, which may have been compacted away."""


class _Unreadable(NamedTuple):
    """Why there are none."""

    last: int
    reason: str
    timestamp_ms: int = 0

    def record(self, place: TopicPartition, position: int) -> ConsumerRecord[bytes, bytes]:
        """What stands for the batch; whoever has it has read up to its end."""
        value = UnreadableBatch(position, f"a batch cannot be read: {self.reason}")
        return ConsumerRecord(
            place.topic, place.partition, self.last, self.timestamp_ms, 0, None, value, None, -1, 0, ()
        )  # fmt: skip


def _frames(raw: bytes) -> Iterator[_Frame]:
    """The batches of one fetch. The last may be cut off: it comes whole with the next fetch."""
    fetched = memoryview(raw)
    begin = 0
    while begin < len(raw):
        end = _end(fetched, begin)
        if end is None:
            if begin == 0:
                yield _Frame(fetched, fetched[:0], whole=False)
            return
        yield _Frame(fetched[begin:end], fetched[end:], whole=True)
        begin = end


def _end(fetched: memoryview, begin: int) -> int | None:
    """Where the batch ends that begins there; None: not within what was fetched, or its length is no batch's."""
    length = _number(fetched, begin + _LENGTH_AT, 4)
    end = begin + _FRAME_BYTES + length
    return end if begin + _MAGIC_AT < end <= len(fetched) else None


def _number(raw: memoryview, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)


def _read(frame: _Frame, position: int) -> _Batch | _Unreadable:
    raw = frame.raw
    if not frame.whole:
        return _Unreadable(_presumed(frame, position), "it is cut off, or its length is damaged")
    if raw[_MAGIC_AT] != _FORMAT or len(raw) < _HEADER_BYTES:
        return _Unreadable(_presumed(frame, position), f"its format is {raw[_MAGIC_AT]}, and only {_FORMAT} is read")
    batch = DefaultRecordBatch(raw)
    if not batch.validate_crc():
        return _Unreadable(_presumed(frame, position), "its checksum is wrong")
    last: int = batch.next_offset - 1
    if last < position or (batch.base_offset > position and (frame.following() or last + 1) <= last):
        return _Unreadable(_presumed(frame, position), f"its offset {batch.base_offset} is damaged")
    try:
        records = () if batch.is_control_batch else records_of(batch, raw)
    except UnreadableError as exc:
        return _Unreadable(last, str(exc), batch.max_timestamp)
    return _Batch(records, last)


def _presumed(frame: _Frame, position: int) -> int:
    """The last offset of a batch that is damaged, and does not tell it for certain; at least one is given up."""
    raw, following = frame.raw, frame.following()
    if following is not None:
        return max(position, following - 1)
    if len(raw) > _MAGIC_AT and raw[_MAGIC_AT] < _FORMAT:
        return max(position, _number(raw, 0, 8))  # of a compressed one its last
    if frame.whole and len(raw) >= _HEADER_BYTES:
        base, delta, count = _number(raw, 0, 8), _number(raw, _DELTA_AT, 4), _number(raw, _COUNT_AT, 4)
        if base <= position <= base + delta and delta + 1 == count:
            return base + delta
    return position
