"""Provides short-lived, read-only access to topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import JOB_STATUS, QUEUE_DECISION, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD, Topic
from slacktide.streams.kafka import TAIL_RECORDS_MAX, WHOLE, Tail, partition_counts, places_of
from slacktide.streams.records import Record

FETCH_WAIT_MS = 5
LATELY_MS = 60_000
"""The status of an active Job is usually republished within this time."""


@asynccontextmanager
async def reading(bootstrap: Cluster, topics: Sequence[Topic]) -> AsyncIterator[tuple[Tail, Mapping[str, int]]]:
    """Connect, and return the partition counts of the topics.

    Raises:
        LogError: Kafka is unavailable, or a topic is missing.
    """
    partitions = await partition_counts(bootstrap, [topic.name for topic in topics])
    if absent := [name for name, count in partitions.items() if not count]:
        do = f"slacktide topics apply {options(bootstrap)}"
        raise LogError(f"{bootstrap}: these topics do not exist: {', '.join(absent)}; create them: {do}")
    async with Tail(bootstrap, FETCH_WAIT_MS, most=TAIL_RECORDS_MAX) as tail:
        yield tail, partitions


async def job_statuses(bootstrap: Cluster, namespace: str, name: str, now_ms: int) -> list[Record]:
    """Read the statuses of a Job by name, including deleted ones. Recent records suffice for an active Job.

    Raises:
        LogError: Kafka cannot be read.
    """
    named = f'"namespace":"{namespace}","name":"{name}",'.encode()

    def wanted(record: Record) -> bool:
        return record.value is None or named in record.value

    async with reading(bootstrap, (JOB_STATUS,)) as (tail, partitions):
        lately = await tail.read(places_of(partitions, {JOB_STATUS.name: now_ms - LATELY_MS}), wanted)
        if any(record.value is not None for record in lately.records):
            return lately.records
        return (await tail.read(places_of(partitions, {JOB_STATUS.name: WHOLE}), wanted)).records


async def queue_of(bootstrap: Cluster) -> list[Record]:
    """Return all specs, workloads and states of the queue; empty without its topics.

    Raises:
        LogError: Kafka cannot be read.
    """
    topics = (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE)
    partitions = await partition_counts(bootstrap, [topic.name for topic in topics])
    if not all(partitions.values()):
        return []
    async with Tail(bootstrap, FETCH_WAIT_MS) as tail:
        return (await tail.read(places_of(partitions, {topic.name: WHOLE for topic in topics}))).records


async def queue_decisions(bootstrap: Cluster, since_ms: int) -> list[Record]:
    """Read the queue's decisions since a time.

    Raises:
        LogError: Kafka cannot be read.
    """
    async with reading(bootstrap, (QUEUE_DECISION,)) as (tail, partitions):
        return (await tail.read(places_of(partitions, {QUEUE_DECISION.name: since_ms}))).records


async def all_job_statuses(bootstrap: Cluster) -> list[Record]:
    """Read the statuses of all Jobs.

    Raises:
        LogError: Kafka cannot be read.
    """
    async with reading(bootstrap, (JOB_STATUS,)) as (tail, partitions):
        return (await tail.read(places_of(partitions, {JOB_STATUS.name: WHOLE}))).records
