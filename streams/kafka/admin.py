"""Creates, describes, counts and changes topics, and computes a group's lag."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, RightsError
from slacktide.schemas.topics import TOPICS, Topic
from slacktide.streams.kafka.connecting import client, close_consumer, silent
from slacktide.streams.kafka.reader import ends_of

REQUEST_MS = 5_000
TIMEOUT_S = 10.0
FETCH_WAIT_MS = 100
_RIGHTS = (ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the broker describes it."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]
    """Only what the broker reports; an embedded broker reports only what was set."""
    begin: dict[int, int]
    """Offset of the oldest record, by partition."""
    end: dict[int, int]
    """Offset of the next record, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    """The offset that the group reads next; None: it never committed."""
    end: int
    records: int
    seconds: float
    """From the next record to the newest one, by their timestamps; 0 without lag."""


async def create_topics(bootstrap: Cluster, topics: Sequence[Topic] = TOPICS) -> list[str]:
    """Create missing topics; existing ones stay unchanged. Return the names of those created.

    Replication is that of ``topics``, at most the number of brokers. Waits up to ``TIMEOUT_S`` until all have leaders.
    Raises LogError if the broker is unreachable, or refused.
    """
    async with _admin(bootstrap) as admin, _asking(bootstrap):
        there = set(await admin.list_topics())
        missing = [topic for topic in topics if topic.name not in there]
        if not missing:
            return []
        response = await admin.create_topics(await _new(admin, missing), timeout_ms=REQUEST_MS)
        for name, code, text in response.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise LogError(f"{bootstrap}: topic {name} could not be created: {text or error.__name__}")
        while True:
            found = (await _there(admin)).items()
            led = {name for name, parts in found if parts and all(part["leader"] >= 0 for part in parts)}
            if led.issuperset(topic.name for topic in topics):
                return [topic.name for topic in missing]
            await asyncio.sleep(0.05)


async def describe_topics(bootstrap: Cluster, names: Sequence[str]) -> dict[str, TopicState]:
    """Describe topics without creating them; omit missing ones. Raises LogError if the broker is unreachable."""
    async with _admin(bootstrap) as admin, _consumer(bootstrap) as consumer, _asking(bootstrap):
        found = {name: parts for name, parts in (await _there(admin)).items() if name in names}
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
        configs = {
            name: {entry[0]: entry[1] for entry in entries}
            for response in (await admin.describe_configs(asked) if asked else ())
            for _, _, _, name, entries in response.resources
        }
        tps = [TopicPartition(name, part["partition"]) for name, parts in found.items() for part in parts]
        begin = await consumer.beginning_offsets(tps) if tps else {}
        end = await ends_of(consumer, tps)
        return {
            name: TopicState(
                name=name,
                partitions=len(parts),
                replication=min((len(part["replicas"]) for part in parts), default=0),
                config=configs.get(name, {}),
                begin={tp.partition: offset for tp, offset in begin.items() if tp.topic == name},
                end={tp.partition: offset for tp, offset in end.items() if tp.topic == name},
            )
            for name, parts in sorted(found.items())
        }


async def partition_counts(bootstrap: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """Return the partition count of each topic; 0: it does not exist. Creates none.

    Raises LogError if the broker is unreachable.
    """
    try:
        async with _admin(bootstrap) as admin, _asking(bootstrap):
            there = await _there(admin)
    except LogError as exc:
        raise type(exc)(f"cannot list the topics of {exc}") from exc
    return {name: len(there.get(name, ())) for name in topics}


async def present(bootstrap: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """Return the partition count of each topic.

    Raises LogError if the broker is unreachable, or a topic does not exist.
    """
    counts = await partition_counts(bootstrap, topics)
    if lack := absence(counts):
        raise LogError(lack)
    return counts


def absence(counts: Mapping[str, int]) -> str:
    """Name the topics that do not exist, and the command that creates them; "": all do."""
    absent = ", ".join(name for name, count in counts.items() if not count)
    return absent and f"these topics do not exist: {absent}; create them: `slacktide topics apply`"


async def group_lag(bootstrap: Cluster, group: str, topics: Sequence[str]) -> list[PartitionLag]:
    """Compute a consumer group's lag in each partition of these topics; omit missing topics.

    Raises LogError if the broker is unreachable, or does not know the coordinator of its groups.
    """
    async with _admin(bootstrap) as admin, _consumer(bootstrap) as consumer, _asking(bootstrap):
        there = await _there(admin)
        tps = [TopicPartition(name, p) for name in topics for p in range(len(there.get(name, ())))]
        if not tps:
            return []
        committed = None
        while committed is None:
            try:
                committed = await admin.list_consumer_group_offsets(group, partitions=tps)
            except GroupCoordinatorNotAvailableError:  # a new cluster first creates the topic that keeps them
                await asyncio.sleep(0.2)
        begin, end = await consumer.beginning_offsets(tps), await ends_of(consumer, tps)
        kept = {tp: found.offset for tp, found in committed.items() if found.offset >= 0}
        # Clamped, because a re-created topic may begin below the committed offset.
        at = {tp: min(max(kept.get(tp, begin[tp]), begin[tp]), end[tp]) for tp in tps}
        waiting = [tp for tp in tps if at[tp] < end[tp]]
        oldest = await _timestamps(consumer, {tp: at[tp] for tp in waiting})
        newest = await _timestamps(consumer, {tp: end[tp] - 1 for tp in waiting})
        return [
            PartitionLag(
                topic=tp.topic,
                partition=tp.partition,
                committed=kept.get(tp),
                end=end[tp],
                records=end[tp] - at[tp],
                seconds=max(0, newest.get(tp, 0) - oldest.get(tp, 0)) / 1000,
            )
            for tp in tps
        ]


@asynccontextmanager
async def _asking(bootstrap: Cluster, timeout_s: float = TIMEOUT_S) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as exc:
        raise LogError(f"{bootstrap}: {silent(timeout_s)}") from exc
    except _RIGHTS as exc:
        raise RightsError(f"{bootstrap}: {exc}, by {bootstrap.security}: slacktide topics acl") from exc
    except KafkaError as exc:
        raise LogError(f"{bootstrap}: {exc!r}") from exc


@asynccontextmanager
async def _admin(bootstrap: Cluster) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(**client(bootstrap), request_timeout_ms=REQUEST_MS)
    try:
        async with _asking(bootstrap, 2 * REQUEST_MS / 1000):
            await admin.start()
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def _consumer(bootstrap: Cluster) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        **client(bootstrap),
        group_id=None,
        request_timeout_ms=REQUEST_MS,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        auto_offset_reset="earliest",
    )
    try:
        async with _asking(bootstrap, 2 * REQUEST_MS / 1000):
            await consumer.start()
        yield consumer
    finally:
        await close_consumer(consumer)


async def _new(admin: Any, topics: Sequence[Topic]) -> list[NewTopic]:
    brokers = len((await admin.describe_cluster())["brokers"])
    copies = [min(topic.replication, brokers) for topic in topics]
    return [
        NewTopic(topic.name, topic.partitions, count, topic_configs=topic.config(count))
        for topic, count in zip(topics, copies, strict=True)
    ]


async def _there(admin: Any) -> dict[str, list[Any]]:
    """Return the partitions of all topics."""
    return {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}


async def _timestamps(consumer: Any, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp of the record at, or next after, each offset of assigned partitions."""
    for tp, offset in offsets.items():
        consumer.seek(tp, offset)
    found: dict[TopicPartition, int] = {}
    while missing := [tp for tp in offsets if tp not in found]:
        for tp, records in (await consumer.getmany(*missing, timeout_ms=FETCH_WAIT_MS)).items():
            found[tp] = records[0].timestamp
    return found


SET_ON_TOPIC = 1
"""Source of a setting that was made for this topic, as in the protocol."""


async def broker_count(bootstrap: Cluster) -> int:
    """Return the number of brokers. Raises LogError if the cluster is unreachable."""
    async with _admin(bootstrap) as admin, _asking(bootstrap):
        return len((await admin.describe_cluster())["brokers"])


async def creation_trouble(bootstrap: Cluster, topics: Sequence[Topic]) -> str:
    """Return why these topics could not be created; "": they could. The broker only validates.

    Raises LogError if the cluster is unreachable.
    """
    async with _admin(bootstrap) as admin, _asking(bootstrap):
        response = await admin.create_topics(await _new(admin, topics), timeout_ms=REQUEST_MS, validate_only=True)
        refused = ((name, text or for_code(code).__name__) for name, code, text in response.topic_errors if code)
        return next((f"{name}: {why}" for name, why in refused), "")


async def set_configs(bootstrap: Cluster, changes: Mapping[str, Mapping[str, str]]) -> None:
    """Set broker settings of existing topics; other settings stay.

    The request replaces all settings of a topic, so existing ones are sent again. ``changes``: new values by topic and
    setting. Raises LogError if the broker is unreachable, or refused.
    """
    async with _admin(bootstrap) as admin, _asking(bootstrap):
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in changes]
        there: dict[str, dict[str, str]] = {name: {} for name in changes}
        for response in await admin.describe_configs(asked):
            for _, _, _, name, entries in response.resources:
                there[name] = {entry[0]: entry[1] for entry in entries if entry[3] == SET_ON_TOPIC}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, there[name] | dict(changes[name])) for name in changes]
        for response in await admin.alter_configs(wanted):
            for code, text, _, name in response.resources:
                if code:
                    raise LogError(f"{bootstrap}: topic {name} could not be changed: {text or for_code(code).__name__}")
