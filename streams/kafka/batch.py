"""What is to be written, put together for the client: by partition, in order, as few batches as hold it."""

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
    """Records of one partition that a broker takes or refuses together."""

    place: TopicPartition
    turn: int
    """How many batches of the partition go before."""
    builder: BatchBuilder
    numbers: list[int] = field(default_factory=list)
    """Of its records, among all that are to be written."""

    def add(self, number: int, out: Out) -> bool:
        """Whether there was room. The first one always has it."""
        taken = self.builder.append(timestamp=None, key=out.key, value=out.value, headers=list(out.written_headers()))
        if taken is None:
            return False
        self.numbers.append(number)
        return True


def batches(producer: AIOKafkaProducer, placed: Iterable[tuple[TopicPartition, int, Out]]) -> list[Batch]:
    """The batches in which these go out, each partition's first ones before any second one.

    A partition's next batch waits for the one before it: begun with, it would hold up all others.
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
    """Refuse what is too large for any batch.

    Args:
        out: the record.
        most_bytes: what a record may have, before it is compressed.

    Raises:
        MessageSizeTooLargeError: it has more.

    """
    if len(out.value or b"") + len(out.key or b"") > most_bytes >> 2:
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(out.key, out.value, list(out.written_headers()))
        if size > most_bytes:
            raise MessageSizeTooLargeError(f"the record has {size:,} bytes, more than {most_bytes:,}")
