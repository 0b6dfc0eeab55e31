"""Records as they come from a log and go to it, and where a key's records lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import aiokafka.client
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.metadata import MetadataRequest

# A client that asks for a topic makes most brokers create it, with a partition count of their own: after
# a broker lost its memory every agent would race the one that creates topics as the table says.
aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)

HeaderList = tuple[tuple[str, bytes], ...]
_partitioner = DefaultPartitioner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as it lies in a log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """When it was appended, or when its producer says it was made: the topic's choice."""
    key: bytes | None
    value: bytes | None
    headers: HeaderList


@dataclass(frozen=True, slots=True, kw_only=True)
class Out:
    """One record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: HeaderList = ()
    partition: int | None = None
    """None: it follows from the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where an acknowledged record lies."""

    partition: int
    offset: int


def partition_of(key: str, partitions: int) -> int:
    """The partition in which a key's records lie, as Kafka's default partitioner has it."""
    partition: int = _partitioner(key.encode(), list(range(partitions)), [])
    return partition


def record_of(raw: Any) -> Record:
    """A consumed record, without what only aiokafka cares for."""
    return Record(
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        timestamp_ms=raw.timestamp,
        key=raw.key,
        value=raw.value,
        headers=tuple(raw.headers),
    )
