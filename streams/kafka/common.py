"""What all doors to Kafka share: errors become ours, records the worker's, endings are short."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import KafkaError

from slacktide.schemas.errors import LogError
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

CLOSE_S = 2.0
POLL_S = 0.2
FETCH_BYTES_MAX = 4 << 20


@contextlib.contextmanager
def trouble(what: str) -> Iterator[None]:
    """Turn the client's errors into a ``LogError`` that says what could not be done."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as exc:
        raise LogError(f"{what}: {str(exc) or type(exc).__name__}") from exc


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


async def close(client: AIOKafkaConsumer[bytes, bytes] | AIOKafkaProducer) -> None:
    """Let go of a client, in time and whatever it says."""
    # In a task of its own: while a broker is away the client's stop may raise CancelledError, as if we were cancelled.
    closing = asyncio.ensure_future(client.stop())
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if not closing.done() or closing.cancelled() or closing.exception() is not None:
        log.info("a connection was closed without an answer")
        closing.cancel()
        # A stop that breaks off leaves the part that asks for metadata for ever.
        inner = client._client if isinstance(client, AIOKafkaConsumer) else client.client  # noqa: SLF001
        await asyncio.wait({asyncio.ensure_future(inner.close())}, timeout=CLOSE_S)
