"""Reads one topic for display: roughly by time across its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.admin import REQUEST_MS, _asking, _consumer
from slacktide.streams.kafka.common import partition_of, record_of, since
from slacktide.streams.kafka.reader import ends_of, partitions_of
from slacktide.streams.records import Record

STALLED_S = 5.0


async def read_topic(
    bootstrap: Cluster,
    topic: str,
    *,
    since_ms: int | None = None,
    start: Mapping[int, int] | None = None,
    follow: bool = False,
    key: str | None = None,
) -> AsyncGenerator[Record, None]:
    """Read a topic's records: in order within a partition, roughly by time across partitions.

    Close it (``contextlib.aclosing``) if you stop before its end. ``since_ms``: the first timestamp; None: from the
    oldest. Without it, ``start`` has start offsets by partition. ``follow``: continue with new records; otherwise stop
    at the current end. A ``key`` is read from its partition alone.

    Raises:
        LogError: the broker is unreachable, has no such topic, or stopped answering.
    """
    async with _consumer(bootstrap) as consumer:
        async with _asking(bootstrap, REQUEST_MS / 1000):
            tps = await partitions_of(consumer, topic)
            if key is not None:
                tps = [tps[partition_of(key, len(tps))]]
            ends = await _seek(consumer, tps, since_ms, start or {})
        async for batch in _batches(bootstrap, consumer, None if follow else ends):
            for record in sorted(batch, key=lambda one: one.timestamp):
                if (key is None or record.key == key.encode()) and (since_ms is None or record.timestamp >= since_ms):
                    yield record_of(record)


async def _seek(
    consumer: Any, tps: Sequence[TopicPartition], since_ms: int | None, start: Mapping[int, int]
) -> dict[TopicPartition, int]:
    ends = await ends_of(consumer, tps)
    starts = {tp: max(at, start.get(tp.partition, 0)) for tp, at in (await consumer.beginning_offsets(tps)).items()}
    if since_ms is not None:
        starts = await since(consumer, ends, since_ms)
    for tp in tps:
        consumer.seek(tp, starts[tp])
    return ends


async def _batches(
    bootstrap: Cluster, consumer: Any, ends: Mapping[TopicPartition, int] | None
) -> AsyncIterator[list[ConsumerRecord]]:
    """Yield batches of the assigned partitions until every position has reached its end (None: forever)."""
    silent_s = 0.0
    while ends is None or await _short_of(bootstrap, consumer, ends):
        try:
            got = await consumer.getmany(timeout_ms=1_000)
        except KafkaError as exc:
            raise LogError(f"{bootstrap}: {exc!r}") from exc
        silent_s = 0.0 if got else silent_s + 1
        if ends is not None and silent_s >= STALLED_S:
            raise LogError(f"{bootstrap}: nothing came for {STALLED_S:g} s although records are there")
        yield [record for tp, records in got.items() for record in records if ends is None or record.offset < ends[tp]]


async def _short_of(bootstrap: Cluster, consumer: Any, ends: Mapping[TopicPartition, int]) -> bool:
    """Check whether some position has not reached its end, within a timeout."""
    try:
        async with asyncio.timeout(STALLED_S):
            return bool([tp for tp, end in ends.items() if await consumer.position(tp) < end])
    except TimeoutError as exc:
        raise LogError(f"{bootstrap}: no position in {next(iter(ends)).topic} within {STALLED_S:g} s") from exc
