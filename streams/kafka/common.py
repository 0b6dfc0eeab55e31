"""Shared functions of the package: errors, records, and the partition of a key."""

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
"""Within this time a client notices new partitions and leaders."""
_partitioner = DefaultPartitioner()


@contextlib.contextmanager
def trouble(what: str) -> Iterator[None]:
    """Raise the client's errors as a ``LogError`` that names what failed."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as exc:
        raise LogError(f"{what}: {str(exc) or type(exc).__name__}") from exc


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, by Kafka's default partitioner."""
    partition: int = _partitioner(key.encode(), list(range(partitions)), [])
    return partition


def record_of(read: ConsumerRecord[bytes, bytes]) -> Record:
    """Return a record as the worker's type."""
    return Record(
        topic=read.topic,
        partition=read.partition,
        offset=read.offset,
        timestamp_ms=read.timestamp,
        key=read.key,
        value=read.value,
        headers=read.headers,
    )
