"""Shared by readers and writers: errors, records, lookups by time, how often to fetch, and closing in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import OffsetAndTimestamp

from slacktide.schemas.bounds import clamped_ms
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


async def first_since(
    consumer: AIOKafkaConsumer[bytes, bytes], since_ms: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
    """Return each partition's first record since a time; None: it has none.

    The client refuses a negative time, which a wrong clock or a long ``--since`` may cause.

    Raises:
        KafkaError: no answer.
    """
    asked = {place: clamped_ms(time_ms) for place, time_ms in since_ms.items()}
    found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await consumer.offsets_for_times(asked) if asked else {}
    return found


async def since(
    consumer: AIOKafkaConsumer[bytes, bytes], ends: Mapping[TopicPartition, int], since_ms: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record since this time; its end if there is none."""
    found = await first_since(consumer, dict.fromkeys(ends, since_ms))
    # Without such a record, Kafka returns None, and the embedded broker a timestamp of -1.
    return {place: at.offset if at is not None and at.timestamp >= 0 else ends[place] for place, at in found.items()}


IDLE_AFTER_S: Final = 1.0
IDLE_WAIT_MS: Final = 1_000
"""Kafka holds a fetch this long, and answers as soon as there is a record."""
LOOK_S: Final = 0.2
"""How often the client checks for other work."""
LATER_S: Final = 0.5
"""So long after a held fetch is answered, so that it checks once."""
GATHER_BYTES: Final = 1 << 20
"""A reader whose records gather is answered sooner if there are so many."""


class Pace:
    """The pace of one consumer; ``fetch_wait_ms``: how long the broker may hold a fetch while records arrive.

    ``gather_ms``: the broker holds each fetch so long, though there are records; 0: it does not.
    """

    def __init__(self, fetch_wait_ms: int, gather_ms: int = 0) -> None:
        self._fetch_wait_ms = fetch_wait_ms
        self._gather_ms = gather_ms
        self._empty_s = 0.0

    def polled(self, consumer: AIOKafkaConsumer[bytes, bytes], *, found: bool, wait_s: float) -> None:
        """Count a poll that waited ``wait_s`` at most, and set the client's fetch wait."""
        self._empty_s = 0.0 if found else self._empty_s + wait_s
        fetcher = consumer._fetcher  # noqa: SLF001 - it has no public method
        if self._gather_ms:
            wait_ms, fetcher._fetch_min_bytes = self._gather_ms, GATHER_BYTES  # noqa: SLF001
            look_s = wait_ms / 1_000 + LATER_S
        elif self._empty_s > IDLE_AFTER_S - 0.001:
            wait_ms, look_s = max(self._fetch_wait_ms, IDLE_WAIT_MS), IDLE_WAIT_MS / 1_000 + LATER_S
        else:
            wait_ms, look_s = self._fetch_wait_ms, LOOK_S
        fetcher._fetch_max_wait_ms, fetcher._fetcher_timeout = wait_ms, look_s  # noqa: SLF001


CLOSE_S = 2.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending its queue, which its own ``stop`` would do, possibly forever."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    await to_its_end(_in_turn(producer._sender.close(), producer.client.close()))  # noqa: SLF001


async def close(consumer: Any) -> None:
    """Close a consumer; a member of a group leaves it."""
    # An interrupted stop would leave the metadata task running forever.
    await to_its_end(_in_turn(consumer.stop(), consumer._client.close()))  # noqa: SLF001


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the work has ended; raise a cancellation only then."""
    closing = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait({closing})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    closing.result()


async def _in_turn(stop: Coroutine[Any, Any, None], close_client: Coroutine[Any, Any, None]) -> None:
    await _ended(stop)
    await close_client


async def _ended(work: Coroutine[Any, Any, None]) -> None:
    """Wait a limited time until the client has stopped; ignore its errors.

    In a separate task, because a stop may raise CancelledError of its own fetches.
    """
    stopping = asyncio.create_task(work)
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=CLOSE_S)
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
        stopping.exception()
