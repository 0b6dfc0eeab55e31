"""Reads one batch of records carefully, so that invalid bytes affect only that batch, within bounded memory.

A batch is unreadable if its checksum or structure is wrong, its format is older than Kafka 0.11, it does not inflate,
or it would take too much memory: a compressed megabyte may hold gigabytes of zeros. One record with an
``UnreadableBatch`` as its value replaces it. Aborted transactions are included: no reader here uses read_committed.
"""

import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import cramjam
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy, _DefaultRecordPy

# The client's C version reads beyond the buffer's end if a length is wrong, which ends the process.
from aiokafka.record.util import decode_varint_py as decode_varint
from google_crc32c import value as crc32c

from slacktide.schemas.dead_letter import UnreadableBatch

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

    Raises UnreadableError if the codec is unknown, or the data is damaged or too large.
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


RECORD_BYTES: Final = 400
"""The client's memory per record, beside its key, its value and its headers."""
HEADER_BYTES: Final = 100
"""The client's memory per header. On the wire an empty one is two bytes."""
BATCH_MEMORY_MAX: Final = 2 * INFLATED_BYTES_MAX
SMALL_BYTES: Final = 1 << 20
"""Headers of smaller batches are too few to count."""

_FRAME_BYTES, _HEADER_BYTES = 12, 61
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CHECKED_FROM, _DELTA_AT, _COUNT_AT = 8, 16, 17, 21, 23, 57
_CODEC_AT, _CODEC = 22, 0x07


def records_of(batch: DefaultRecordBatch, raw: memoryview, names: Sequence[bytes] = ()) -> Sequence[Any]:
    """Return all records of a batch; one whose header names are not UTF-8 is read without its headers.

    None is read if there are ``names``, and the batch has none of them. Raises UnreadableError if it does not inflate,
    takes too much memory, or its records are damaged.
    """
    count = int.from_bytes(raw[_COUNT_AT:_HEADER_BYTES], "big", signed=True)
    codec = raw[_CODEC_AT] & _CODEC
    if codec:
        head = bytearray(raw[:_HEADER_BYTES])
        head[_CODEC_AT] &= ~_CODEC
        raw = memoryview(bytes(head) + inflated(codec, bytes(raw[_HEADER_BYTES:])))
        batch = DefaultRecordBatch(raw)
    if names:
        whole = bytes(raw)
        if not any(name in whole for name in names):
            return ()
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


def _check_memory(raw: memoryview, count: int) -> None:
    memory_bytes = len(raw) + RECORD_BYTES * count
    if memory_bytes <= BATCH_MEMORY_MAX and len(raw) > SMALL_BYTES:
        memory_bytes += HEADER_BYTES * _headers(raw, count)
    if memory_bytes > BATCH_MEMORY_MAX:
        raise UnreadableError(f"its {count} records and their headers take more than {BATCH_MEMORY_MAX} bytes")


def _headers(raw: memoryview, count: int) -> int:
    buffer, pos, headers = bytearray(raw), _HEADER_BYTES, 0
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

    def _read_msg(self, *_decode: Any) -> Any:
        try:
            return super()._read_msg(decode_varint)
        except UnicodeDecodeError:
            pass
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


HEADERS_MAX: Final = 64
"""Headers kept of a record."""

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


def read(place: TopicPartition, frame: Frame, position: int, names: Sequence[bytes] = ()) -> Found:
    """Read a batch carefully; ``position``: of the fetch, possibly within the batch.

    ``names``: a batch with none of them is not read; empty: each is.
    """
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
        records = () if batch.is_control_batch else records_of(batch, raw, names)
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
