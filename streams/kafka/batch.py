"""Builds batches for the client: by partition, in order, as few as possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from slacktide.streams.records import Out


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
    """Check the size of a record, before compression.

    Raises:
        MessageSizeTooLargeError: it exceeds ``most_bytes``.
    """
    if len(out.value or b"") + len(out.key or b"") > most_bytes >> 2:
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(out.key, out.value, list(out.written_headers()))
        if size > most_bytes:
            raise MessageSizeTooLargeError(f"the record has {size:,} bytes, more than {most_bytes:,}")
