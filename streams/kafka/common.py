"""What all parts of the package share: errors become ours, and records; where a key's records lie."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from slacktide.schemas.errors import LogError
from slacktide.streams.records import Record

POLL_S = 0.2
FETCH_BYTES_MAX = 4 << 20
METADATA_MS = 30_000
"""At the latest then a client sees new partitions and leaders."""
_partitioner = DefaultPartitioner()


@contextlib.contextmanager
def trouble(what: str) -> Iterator[None]:
    """Turn the client's errors into a ``LogError`` that states what could not be done."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as exc:
        raise LogError(f"{what}: {str(exc) or type(exc).__name__}") from exc


def partition_of(key: str, partitions: int) -> int:
    """The partition in which a key's records lie, as Kafka's default partitioner has it."""
    partition: int = _partitioner(key.encode(), list(range(partitions)), [])
    return partition


def record_of(read: ConsumerRecord[bytes, bytes]) -> Record:
    """A record as the worker takes it."""
    return Record(
        topic=read.topic,
        partition=read.partition,
        offset=read.offset,
        timestamp_ms=read.timestamp,
        key=read.key,
        value=read.value,
        headers=read.headers,
    )
