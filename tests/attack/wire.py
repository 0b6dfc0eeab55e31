"""Records written by a plain client, as anybody with a credential could."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from slacktide.schemas.codec import encode
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import Topic
from testbed.samples import body_of

REQUEST_MAX_BYTES = 64 << 20
PATIENCE_S = 120.0
"""A broker that was killed may take so long to start where other work keeps the machine busy."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Any bytes for any topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    at_ms: int | None = None
    """The producer's timestamp; None: now."""


def of(topic: Topic, key: str, body: Message, **place: Any) -> Raw:
    """A message under a key."""
    value = body_of(body) if isinstance(body, NodeSample) else encode(body)
    return Raw(topic.name, key.encode(), value, **place)


def put(bootstrap: str, records: Iterable[Raw], **settings: Any) -> list[tuple[str, int, int]]:
    """Write records, again where a broker was away meanwhile; where each lies.

    The settings are the client's, such as ``compression_type``.

    Raises:
        KafkaError: the brokers refuse them, or do not answer for ``PATIENCE_S``.

    """
    options = {"acks": "all", "max_request_size": REQUEST_MAX_BYTES} | settings
    asked, until_s = list(records), time.monotonic() + PATIENCE_S
    while True:
        try:
            return asyncio.run(_send(bootstrap, asked, options))
        except KafkaError as error:
            away = error.retriable or isinstance(error, KafkaConnectionError)
            if not away or time.monotonic() > until_s:
                raise
            time.sleep(0.2)


async def _send(bootstrap: str, records: Iterable[Raw], options: dict[str, Any]) -> list[tuple[str, int, int]]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        await producer.start()
        sent = [
            await producer.send(one.topic, one.value, key=one.key, partition=one.partition, timestamp_ms=one.at_ms)
            for one in records
        ]
        placed = await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return [(one.topic, one.partition, one.offset) for one in placed]
