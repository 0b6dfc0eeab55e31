"""Which offset a time stands for. Every question of this kind goes through here."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndTimestamp

from slacktide.schemas.times import clamped_ms


async def first_since(
    consumer: AIOKafkaConsumer[bytes, bytes], since_ms: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
    """Each partition's first record of its time or a later one, as the broker answers; None: it has none.

    The client refuses a negative time, which a client's clock or a long ``--since`` may lead to.

    Raises:
        KafkaError: nobody answers.

    """
    asked = {place: clamped_ms(time_ms) for place, time_ms in since_ms.items()}
    found: Mapping[TopicPartition, OffsetAndTimestamp | None] = await consumer.offsets_for_times(asked) if asked else {}
    return found


async def since(
    consumer: AIOKafkaConsumer[bytes, bytes], ends: Mapping[TopicPartition, int], since_ms: int
) -> dict[TopicPartition, int]:
    """Where in each partition its first record of this time or a later one lies; its end, where there is none."""
    found = await first_since(consumer, dict.fromkeys(ends, since_ms))
    # No such record: Kafka answers None, the embedded broker a timestamp of -1.
    return {place: at.offset if at is not None and at.timestamp >= 0 else ends[place] for place, at in found.items()}
