"""Looks up offsets by time, for all readers."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndTimestamp

from slacktide.schemas.times import clamped_ms


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
