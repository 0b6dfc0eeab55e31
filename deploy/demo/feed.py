"""Passes records from the topics to the story."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from slacktide.deploy.demo.story import Story
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, OUTCOME, SAMPLE, SAMPLES, Topic
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record
from slacktide.streams.rows import Rows

M = TypeVar("M", bound=Message)


async def feed(bootstrap: Cluster, story: Story, nodes: Sequence[str]) -> None:
    """Read until cancelled.

    Args:
        bootstrap: the Kafka cluster.
        story: receives the records.
        nodes: all nodes; for a single one only its partition is read.

    Raises:
        LogError: Kafka is unavailable.
    """
    key = nodes[0] if len(nodes) == 1 else None
    readers = [
        asyncio.create_task(_follow(bootstrap, topic, take, key), name=f"reads {topic.name}")
        for topic, take in (
            *((topic, _samples(story.sample)) for topic in SAMPLES),
            (COMMAND, _decoded(COMMAND, story.command)),
            (OUTCOME, _decoded(OUTCOME, story.outcome)),
            (ALLOCATABLE, _decoded(ALLOCATABLE, story.allocatable)),
        )
    ]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _follow(bootstrap: Cluster, topic: Topic, take: Callable[[Record], None], key: str | None) -> None:
    async with aclosing(read_topic(bootstrap, topic.name, follow=True, key=key)) as records:
        async for record in records:
            if record.value is not None:
                take(record)


def _samples(take: Callable[[NodeSample], None]) -> Callable[[Record], None]:
    rows, in_rows = Rows(), _decoded(SAMPLE, take)
    return lambda record: in_rows(rows.of(record))


def _decoded(topic: Topic, take: Callable[[M], None]) -> Callable[[Record], None]:
    kind: type[M] = topic.message  # type: ignore[assignment] # the table pairs them

    def take_record(record: Record) -> None:
        try:
            message = decode(record.value, kind)
        except BadMessageError:  # the worker makes a dead letter of it
            return
        take(message)

    return take_record
