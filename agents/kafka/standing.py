"""A consumer without a group, standing where its owner puts it; and whether silence is only silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from slacktide.agents.kafka.closing import stop
from slacktide.schemas.errors import LogError
from slacktide.streams.connecting import client, told

REQUEST_MS = 5_000
METADATA_MS = 30_000


async def opened(
    bootstrap: str, *, client_id: str, fetch_wait_ms: int, assign: Callable[[Any], Awaitable[None]]
) -> AIOKafkaConsumer:
    """Connect, and have ``assign`` say what is read, and from where.

    Raises:
        LogError: the broker cannot be reached, or whatever ``assign`` raises.

    """
    consumer = AIOKafkaConsumer(
        **client(bootstrap),
        client_id=client_id,
        group_id=None,
        request_timeout_ms=REQUEST_MS,
        metadata_max_age_ms=METADATA_MS,
        fetch_max_wait_ms=fetch_wait_ms,
        auto_offset_reset="none",  # a position that is not there: connect anew
    )
    try:
        async with asyncio.timeout(2 * REQUEST_MS / 1000):
            await consumer.start()
            await assign(consumer)
    except (KafkaError, TimeoutError) as exc:
        await stop(consumer)
        raise LogError(f"{bootstrap}: {told(exc)}") from exc
    except BaseException:
        await stop(consumer)
        raise
    return consumer


async def since(consumer: Any, ends: Mapping[TopicPartition, int], since_ms: int) -> dict[TopicPartition, int]:
    """Where in each partition its first record of this time or a later one lies; its end, where there is none."""
    found = await consumer.offsets_for_times(dict.fromkeys(ends, since_ms))
    # No such record: Kafka says None, the embedded broker a timestamp of -1.
    return {tp: at.offset if at is not None and at.timestamp >= 0 else ends[tp] for tp, at in found.items()}


class Silence:
    """Asked when nothing came: is the broker there, and is its log still the one that was being read?

    A broker that lost its memory may say nothing to an offset that is not there any more.
    """

    def __init__(self, bootstrap: str, tps: Sequence[TopicPartition], silence_ms: int) -> None:
        self._bootstrap = bootstrap
        self._tps = tuple(tps)
        self._silence_ms = silence_ms
        self._polled_ms: tuple[int | None, ...] = ()

    async def check(self, consumer: Any) -> None:
        """Look closer.

        Raises:
            LogError: it is not.

        """
        for tp in self._tps:
            end = consumer.highwater(tp)
            if end is not None and await consumer.position(tp) > end:
                raise LogError(f"{self._bootstrap}: {tp.topic} was re-created")
        polled_ms = tuple(consumer.last_poll_timestamp(tp) for tp in self._tps)
        if polled_ms == self._polled_ms:
            raise LogError(f"{self._bootstrap}: no fetch was answered for {self._silence_ms / 1000:g} s")
        self._polled_ms = polled_ms
