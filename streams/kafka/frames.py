"""Reads one batch of records carefully, so that invalid bytes affect only that batch.

A batch is unreadable if its checksum or structure is wrong, its format is older than Kafka 0.11, it does not inflate,
or it would take too much memory. One record with an ``UnreadableBatch`` as its value replaces it. Aborted transactions
are included: no reader here uses read_committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch
from google_crc32c import value as crc32c

from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.streams.kafka.payload import UnreadableError, records_of

HEADERS_MAX: Final = 64
"""Headers kept of a record."""

_FRAME_BYTES, _HEADER_BYTES = 12, 61
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CHECKED_FROM, _DELTA_AT, _COUNT_AT = 8, 16, 17, 21, 23, 57
_FORMAT = 2
"""Of batches, since Kafka 0.11."""


class Frame(NamedTuple):
    """One batch as it was fetched."""

    raw: memoryview
    behind: memoryview
    whole: bool

    def following(self) -> int | None:
        """Return the first offset of the next batch; None: no batch with a valid checksum follows.

        If the length is damaged, any bytes may follow.
        """
        end = _end(self.behind, 0)
        if end is None or end < _HEADER_BYTES or self.behind[_MAGIC_AT] != _FORMAT:
            return None
        return _number(self.behind, 0, 8) if _intact(self.behind[:end]) else None


class Found(NamedTuple):
    """The content of a batch."""

    records: list[ConsumerRecord[bytes, bytes]]
    """From the position on; or the record that replaces the batch."""
    position: int
    """The position behind the batch."""
    ends: bool
    """Whether the batch ends where its length indicates. Otherwise, the next fetch finds the next batch."""


def frame_at(fetched: memoryview, begin: int) -> Frame | None:
    """Return the batch at ``begin``, 0 or the end of another; None: it is truncated, and fetched again."""
    end = _end(fetched, begin)
    if end is None:
        return Frame(fetched, fetched[:0], whole=False) if fetched and begin == 0 else None
    return Frame(fetched[begin:end], fetched[end:], whole=True)


def read(place: TopicPartition, frame: Frame, position: int) -> Found:
    """Read a batch carefully; ``position``: of the fetch, possibly within the batch."""
    raw = frame.raw
    if not frame.whole:
        return _damaged(place, frame, position, "it is truncated, or its length is damaged")
    if raw[_MAGIC_AT] != _FORMAT or len(raw) < _HEADER_BYTES:
        return _damaged(place, frame, position, f"its format is {raw[_MAGIC_AT]}; accepted: {_FORMAT}")
    batch = DefaultRecordBatch(raw)
    if not _intact(raw):
        return _damaged(place, frame, position, "its checksum is wrong")
    last: int = batch.next_offset - 1  # of its last record, which may have been compacted away
    if last < position or (batch.base_offset > position and (frame.following() or last + 1) <= last):
        return _damaged(place, frame, position, f"its offset {batch.base_offset} is damaged")
    try:
        records = () if batch.is_control_batch else records_of(batch, raw)
    except UnreadableError as exc:
        instead = _instead(place, position, last, str(exc), batch.max_timestamp)
        return Found([instead], last + 1, ends=True)
    return Found(list(_from(place, records, position, last)), last + 1, ends=True)


def _from(
    place: TopicPartition, records: Sequence[Any], position: int, last: int
) -> Iterator[ConsumerRecord[bytes, bytes]]:
    topic, partition = place
    for record in records:
        offset = record.offset
        if not position <= offset <= last:
            continue
        position = offset + 1
        key, value = record.key, record.value
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


def _damaged(place: TopicPartition, frame: Frame, position: int, reason: str) -> Found:
    """Skip a batch whose checksum or offsets are invalid."""
    last = _presumed(frame, position)
    return Found([_instead(place, position, last, reason)], last + 1, frame.following() is not None)


def _instead(
    place: TopicPartition, position: int, last: int, reason: str, timestamp_ms: int = 0
) -> ConsumerRecord[bytes, bytes]:
    """Return the record that replaces a batch; its offset is the batch's last."""
    value = UnreadableBatch(position, f"a batch cannot be read: {reason}")
    return ConsumerRecord(place.topic, place.partition, last, timestamp_ms, 0, None, value, None, -1, 0, ())


def _end(fetched: memoryview, begin: int) -> int | None:
    """Return the end of a batch; None: beyond the fetched bytes, or an invalid length."""
    length = _number(fetched, begin + _LENGTH_AT, 4)
    end = begin + _FRAME_BYTES + length
    return end if begin + _MAGIC_AT < end <= len(fetched) else None


def _number(raw: memoryview, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)


def _intact(raw: memoryview) -> bool:
    """Check the checksum; the client takes ten times as long."""
    found: bool = crc32c(bytes(raw[_CHECKED_FROM:])) == int.from_bytes(raw[_CRC_AT:_CHECKED_FROM], "big")
    return found


def _presumed(frame: Frame, position: int) -> int:
    """Return the presumed last offset of a damaged batch; at least one offset is skipped."""
    raw, following = frame.raw, frame.following()
    if following is not None:
        return max(position, following - 1)
    if len(raw) > _MAGIC_AT and raw[_MAGIC_AT] < _FORMAT:
        return max(position, _number(raw, 0, 8))  # the last offset if compressed
    if frame.whole and len(raw) >= _HEADER_BYTES:
        base, delta, count = _number(raw, 0, 8), _number(raw, _DELTA_AT, 4), _number(raw, _COUNT_AT, 4)
        if base <= position <= base + delta and delta + 1 == count:
            return base + delta
    return position
