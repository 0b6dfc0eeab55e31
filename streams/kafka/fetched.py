"""Turns fetched bytes into records, so that an unreadable batch affects only itself.

The client raises at such a batch, at each fetch, which would stop every worker and agent of its partition. It has no
setting for that, so ``patches`` replaces its reader of fetched bytes. The client also makes objects of each record and
header. A consumer whose ``value_deserializer`` is ``at_once`` receives each partition's fetch as one
``FetchedBatches``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from slacktide.streams.kafka.frames import frame_at, read
from slacktide.streams.kafka.inflation import INFLATED_BYTES_MAX
from slacktide.streams.kafka.payload import RECORD_BYTES
from slacktide.streams.kafka.walk import FetchedBatches, walked

FETCH_BYTES_MAX: Final = INFLATED_BYTES_MAX
"""Read of one fetch and partition. The rest is fetched again."""


def at_once(_: bytes) -> Any:
    """Mark a consumer, as its ``value_deserializer``, that receives whole fetches.

    Raises:
        RuntimeError: always; only a client without the package's patches calls it.
    """
    raise RuntimeError("aiokafka reads records one by one: import slacktide.streams.kafka before the consumer is made")


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
        self.next_fetch_offset = position
        self._place = place
        self._records = self._whole(fetched.raw) if at_once in settings else self._one_by_one(fetched.raw)

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def __next__(self) -> Any:
        return next(self._records)

    def _whole(self, raw: bytes) -> Iterator[Any]:
        batches = walked(raw, self.next_fetch_offset, FETCH_BYTES_MAX)
        self.next_fetch_offset = batches.position
        if len(batches):
            yield batches

    def _one_by_one(self, raw: bytes) -> Iterator[Any]:
        fetched = memoryview(raw)
        left_bytes, begin = FETCH_BYTES_MAX, 0
        while left_bytes >= 0 and (frame := frame_at(fetched, begin)) is not None:
            found = read(self._place, frame, self.next_fetch_offset)
            for record in found.records:
                self.next_fetch_offset = record.offset + 1
                left_bytes -= RECORD_BYTES + len(record.value or b"")
                yield record
            self.next_fetch_offset = found.position
            if not found.ends:
                return
            begin += len(frame.raw)
