"""Builds batches: from records for the client, and from records that were encoded before.

Parts that many records share are encoded once. An encoded record reaches from the length of its key to its last
header. The bytes before depend on its place in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from google_crc32c import value as crc32c

from slacktide.streams.records import Out
from slacktide.streams.rendering import field_at, headers_in, varint

RENDERED_BYTES_MAX: Final = 900_000
"""Per batch. By default a broker accepts 1 MiB."""
_AROUND_BYTES: Final = 10
"""Maximum per record, for its length and its place in the batch."""
_FRONT: Final = Struct(">qiibI")
"""Base offset, length, leader epoch, format, and checksum of the rest."""
_HEADER: Final = Struct(">hiqqqhii")
"""Attributes, last offset delta, first and last timestamp, producer id and epoch, base sequence, count of records."""
_HEADER_BYTES: Final = _FRONT.size + _HEADER.size
_UNCHECKED_BYTES = 9
"""Leader epoch, format and checksum."""
_FORMAT = 2


class Rendered(msgspec.Struct, gc=False):
    """Records of one partition, in order."""

    topic: str
    partition: int
    records: list[bytes]
    """From ``rendered``."""


def out_of(place: TopicPartition, raw: bytes) -> Out:
    """Decode a rendered record."""
    key, at = field_at(raw, 0)
    value, at = field_at(raw, at)
    return Out(topic=place.topic, partition=place.partition, key=key, value=value, headers=headers_in(raw[at:]))


class Part(NamedTuple):
    """Rendered records of one batch."""

    place: TopicPartition
    first: int
    """Its first record, among all that are written."""
    records: list[bytes]

    def halves(self) -> list[Part]:
        """Split into two batches."""
        half = len(self.records) // 2
        return [
            Part(self.place, self.first, self.records[:half]),
            Part(self.place, self.first + half, self.records[half:]),
        ]


def parts(batches: Sequence[Rendered]) -> list[Part]:
    """Return as few batches as possible, each partition's first ones before any second one.

    A partition's next batch waits for the one before it, and would delay all others.
    """
    made: list[tuple[int, Part]] = []
    turns: dict[TopicPartition, int] = {}
    first = 0
    for batch in batches:
        place = TopicPartition(batch.topic, batch.partition)
        for records in _split(batch.records):
            turn = turns[place] = turns.get(place, -1) + 1
            made.append((turn, Part(place, first, records)))
            first += len(records)
    made.sort(key=lambda one: one[0])
    return [part for _, part in made]


def _split(records: list[bytes]) -> Iterator[list[bytes]]:
    if size_bytes(records) <= RENDERED_BYTES_MAX:
        if records:
            yield records
        return
    begin, room_bytes = 0, RENDERED_BYTES_MAX - _HEADER_BYTES
    for number, record in enumerate(records):
        record_bytes = len(record) + _AROUND_BYTES
        room_bytes -= record_bytes
        if room_bytes < 0 and number > begin:
            yield records[begin:number]
            begin, room_bytes = number, RENDERED_BYTES_MAX - _HEADER_BYTES - record_bytes
    yield records[begin:]


def size_bytes(records: Sequence[bytes]) -> int:
    """Return the largest size of a batch of these records."""
    return _HEADER_BYTES + sum(map(len, records)) + _AROUND_BYTES * len(records)


class RenderedBatch:
    """A batch of rendered records, at least one. ``AIOKafkaProducer.send_batch`` accepts it as a ``BatchBuilder``."""

    def __init__(self, records: Sequence[bytes], timestamp_ms: int) -> None:
        self._records = records
        self._count = len(records)
        self._timestamp_ms = timestamp_ms
        self._producer = -1, -1, -1
        self._buffer: tuple[bytes, bytes] | None = None

    def record_count(self) -> int:
        """Return the number of records."""
        return self._count

    def closed(self) -> bool:
        """Return that nothing can be added."""
        return True

    def close(self) -> None:
        """Do nothing: it is closed."""

    def size(self) -> int:
        """Return the bytes; an upper bound before it is built."""
        return sum(map(len, self._buffer)) if self._buffer else size_bytes(self._records)

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = producer_id, producer_epoch, base_sequence

    def _build(self) -> tuple[bytes, bytes]:
        """Return the batch in two pieces, which ``connecting`` joins with the rest of the request."""
        if self._buffer is None:
            at_ms, count = self._timestamp_ms, self._count
            pieces = [_HEADER.pack(0, count - 1, at_ms, at_ms, *self._producer, count)]
            for place, record in enumerate(self._records):
                around = _around(place)
                pieces += varint(len(around) + len(record)), around, record
            checked = b"".join(pieces)
            front = _FRONT.pack(0, len(checked) + _UNCHECKED_BYTES, -1, _FORMAT, crc32c(checked))
            self._buffer, self._records = (front, checked), ()  # keep one copy of the bytes
        return self._buffer


@lru_cache(maxsize=1 << 14)
def _around(place: int) -> bytes:
    return b"\0\0" + varint(place)


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that a broker accepts or rejects together."""

    place: TopicPartition
    turn: int
    """Batches of the partition before this one."""
    builder: BatchBuilder
    numbers: list[int] = field(default_factory=list)

    def add(self, number: int, out: Out) -> bool:
        """Add a record; return False if there is no room. The first one always fits."""
        taken = self.builder.append(timestamp=None, key=out.key, value=out.value, headers=list(out.written_headers()))
        if taken is None:
            return False
        self.numbers.append(number)
        return True


def batches(producer: AIOKafkaProducer, placed: Iterable[tuple[TopicPartition, int, Out]]) -> list[Batch]:
    """Return the batches to send, each partition's first ones before any second one.

    A partition's next batch waits for the one before it, and would delay all others.
    """
    newest: dict[TopicPartition, Batch] = {}
    made: list[Batch] = []
    for place, number, out in placed:
        batch = newest.get(place)
        if batch is None or not batch.add(number, out):
            turn = 0 if batch is None else batch.turn + 1
            batch = newest[place] = Batch(place, turn, producer.create_batch())
            batch.add(number, out)
            made.append(batch)
    for batch in made:
        batch.builder.close()
    made.sort(key=lambda batch: batch.turn)
    return made


def check_size(out: Out, most_bytes: int) -> None:
    """Check the size of a record, before compression. Raises MessageSizeTooLargeError if it exceeds ``most_bytes``."""
    if len(out.value or b"") + len(out.key or b"") > most_bytes >> 2:
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(out.key, out.value, list(out.written_headers()))
        if size > most_bytes:
            raise MessageSizeTooLargeError(f"the record has {size:,} bytes, more than {most_bytes:,}")
