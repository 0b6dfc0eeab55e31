"""Turns fetched bytes into records, so that an unreadable batch affects only itself.

The client raises at such a batch, at each fetch, which would stop every worker and agent of its partition. It has no
setting for that, so ``patches`` replaces its reader of fetched bytes. The client also makes objects of each record and
header. A consumer whose ``value_deserializer`` is ``at_once`` receives each partition's fetch as one
``FetchedBatches``, which locates the records without decoding them. Only plain batches are located: complete,
uncompressed, with a valid checksum, and at the current position. The careful reader (``frames``) reads others at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from google_crc32c import value as crc32c

from slacktide.streams.kafka.payload import INFLATED_BYTES_MAX, RECORD_BYTES, SMALL_BYTES, frame_at, read

_HEADER: Final = Struct(">qi4xbIhiqq14xi")
"""Base offset, length, format, checksum, attributes, last offset delta, first and last timestamp, count of records."""
_HEADER_BYTES: Final = _HEADER.size
_FRAME_BYTES, _CHECKED_FROM = 12, 21
_FORMAT = 2
_BY_BROKER = 0x08
_ODD = 0x27
"""Attributes of a compressed batch, or of one that marks a transaction's end."""
_RECORD_BYTES_MIN = 7
_RECORDS_MAX = 32 << 10
"""Per batch; the careful reader checks the memory of larger ones."""

_ANY: Final = TopicPartition("", 0)
"""A placeholder: the caller knows the partition."""


class PlainBatch(NamedTuple):
    """A batch whose records are in ``FetchedBatches.starts``."""

    first: int
    """Its first record in ``starts``."""
    base: int
    last_delta: int
    """Offset of its last record, relative to the base offset."""
    time_ms: int
    """Of its first record; with LogAppendTime of all of them."""
    by_broker: int
    """1: its topic has LogAppendTime."""
    begin: int
    """Where the batch begins."""


class FetchedBatches:
    """The bytes that one fetch returned of one partition, with the places of its records."""

    def __init__(self, raw: bytes, position: int) -> None:
        self.raw = raw
        self.position = position
        """The position behind what was walked."""
        self.starts: list[int] = []
        """Where each record of the plain batches begins, behind its length."""
        self.ends: list[int] = []
        self.plain: list[PlainBatch] = []
        self.others: list[tuple[int, list[ConsumerRecord[bytes, bytes]]]] = []
        """Records of other batches, and how many in ``starts`` precede them."""

    def __len__(self) -> int:
        return len(self.starts) + sum(len(records) for _, records in self.others)

    def counts(self) -> list[int]:
        """Return the number of records in each plain batch."""
        firsts = [batch.first for batch in self.plain]
        return [end - begin for begin, end in pairwise([*firsts, len(self.starts)])]

    def span(self, number: int) -> tuple[int, int]:
        """Return the range of a plain batch in ``starts``."""
        following = self.plain[number + 1].first if number + 1 < len(self.plain) else len(self.starts)
        return self.plain[number].first, following

    def read_again(self, number: int) -> list[ConsumerRecord[bytes, bytes]]:
        """Return a plain batch's records, read carefully because one is damaged."""
        batch = self.plain[number]
        frame = frame_at(memoryview(self.raw), batch.begin)
        assert frame is not None, "it was walked"
        return read(_ANY, frame, batch.base).records

    def add_plain(self, begin: int) -> int:
        """Walk the batch that begins there; return its end, or 0 if it is not plain."""
        raw, first = self.raw, len(self.starts)
        if begin + _HEADER_BYTES > len(raw):
            return 0
        base, length, magic, crc, attributes, last_delta, first_ms, max_ms, count = _HEADER.unpack_from(raw, begin)
        end: int = begin + _FRAME_BYTES + length
        if (
            magic != _FORMAT
            or base != self.position
            or last_delta < 0
            or attributes & _ODD
            or not begin + _HEADER_BYTES <= end <= min(len(raw), begin + SMALL_BYTES)
            or not 0 <= count <= min(_RECORDS_MAX, length // _RECORD_BYTES_MIN)
            or crc32c(raw[begin + _CHECKED_FROM : end]) != crc
            or not self._walk(begin + _HEADER_BYTES, end, count)
        ):
            return 0
        by_broker = attributes & _BY_BROKER
        self.plain.append(PlainBatch(first, base, last_delta, max_ms if by_broker else first_ms, by_broker >> 3, begin))
        self.position = base + last_delta + 1
        return end

    def _walk(self, at: int, end: int, count: int) -> bool:
        """Locate ``count`` records; return False and keep none if they do not fill the batch."""
        raw, starts, ends = self.raw, self.starts, self.ends
        first, sizes = len(starts), 0
        try:
            for _ in range(count):
                size = raw[at]  # a varint of at most three bytes: up to 1 MB
                at += 1
                if size > 0x7F:
                    size += (raw[at] << 7) - 0x80
                    at += 1
                    if size > 0x3FFF:
                        size += (raw[at] << 14) - 0x4000
                        at += 1
                sizes |= size
                starts.append(at)
                at += size >> 1
                ends.append(at)
        except IndexError:
            at = -1
        if at == end and not sizes & 1:  # an odd size is negative
            return True
        del starts[first:], ends[first:]
        return False


def walked(raw: bytes, position: int, most_bytes: int) -> FetchedBatches:
    """Walk the fetched bytes of one partition; the last batch may be truncated.

    ``position``: the offset that was requested. ``most_bytes``: of memory, for keys and values; the rest is left for
    the next fetch.
    """
    found = FetchedBatches(raw, position)
    fetched, begin, left_bytes = memoryview(raw), 0, most_bytes
    while begin < len(raw) and left_bytes >= 0:
        before = len(found.starts)
        end = found.add_plain(begin)
        if end:
            left_bytes -= RECORD_BYTES * (len(found.starts) - before) + end - begin
        else:
            frame = frame_at(fetched, begin)
            if frame is None:
                break
            other = read(_ANY, frame, found.position)
            found.position = other.position
            found.others.append((before, other.records))
            if not other.ends:
                break
            left_bytes -= sum(RECORD_BYTES + len(record.value or b"") for record in other.records)
            end = begin + len(frame.raw)
        begin = end
    return found


FETCH_BYTES_MAX: Final = INFLATED_BYTES_MAX
"""Read of one fetch and partition. The rest is fetched again."""


def at_once(_: bytes) -> Any:
    """Mark a consumer, as its ``value_deserializer``, that receives whole fetches.

    Raises RuntimeError always: only a client without the package's patches calls it.
    """
    raise RuntimeError("aiokafka reads records one by one: import slacktide.streams.kafka before the consumer is made")


class Naming:
    """Marks a consumer, as its ``value_deserializer``, that needs the records that name one node.

    Others may be left out, a batch at a time: ``names`` has what a batch of a topic must contain one of. Batches of
    other topics are read whole. An unreadable batch is never left out.
    """

    def __init__(self, names: Mapping[str, Sequence[bytes]]) -> None:
        self._names = names

    def __call__(self, _: bytes) -> Any:
        """Refuse, as ``at_once``."""
        at_once(_)

    def of(self, topic: str) -> Sequence[bytes]:
        """Return what a batch of a topic must contain one of; empty: anything."""
        return self._names.get(topic) or ()


def records_in(items: Sequence[Any]) -> int:
    """Return the number of records that a consumer returned: one by one, or in whole fetches."""
    return sum(len(one) if isinstance(one, FetchedBatches) else 1 for one in items)


class FetchedBytes:
    """The bytes that one fetch returned of one partition. Replaces the client's ``MemoryRecords``."""

    def __init__(self, raw: bytes | None) -> None:
        self.raw = raw or b""

    def has_next(self) -> bool:
        """Check whether there are bytes."""
        return bool(self.raw)

    def size_in_bytes(self) -> int:
        """Return the number of bytes."""
        return len(self.raw)


class FetchedRecords:
    """The records of one fetch of one partition, in order, and the position behind those that were taken.

    Replaces the client's ``PartitionRecords``, an iterator whose position the client reads after each record.
    """

    def __init__(
        self, place: TopicPartition, fetched: FetchedBytes, _: object, position: int, *settings: object
    ) -> None:
        self.next_fetch_offset, self._place = position, place
        names = next((one.of(place.topic) for one in settings if isinstance(one, Naming)), ())
        self._records = self._whole(fetched.raw) if at_once in settings else self._one_by_one(fetched.raw, names)

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def __next__(self) -> Any:
        return next(self._records)

    def _whole(self, raw: bytes) -> Iterator[Any]:
        batches = walked(raw, self.next_fetch_offset, FETCH_BYTES_MAX)
        self.next_fetch_offset = batches.position
        if len(batches):
            yield batches

    def _one_by_one(self, raw: bytes, names: Sequence[bytes]) -> Iterator[Any]:
        fetched = memoryview(raw)
        left_bytes, begin = FETCH_BYTES_MAX, 0
        while left_bytes >= 0 and (frame := frame_at(fetched, begin)) is not None:
            found = read(self._place, frame, self.next_fetch_offset, names)
            for record in found.records:
                self.next_fetch_offset = record.offset + 1
                left_bytes -= RECORD_BYTES + len(record.value or b"")
                yield record
            self.next_fetch_offset = found.position
            if not found.ends:
                return
            begin += len(frame.raw)
