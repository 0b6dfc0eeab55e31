"""A reader of whole topics: from their end, or all that they hold first."""

import asyncio

from aiokafka import AIOKafkaProducer

from slacktide.agents.clock import SystemClock
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import METRIC, SCORE
from slacktide.streams.kafka import Sender, TailReader
from slacktide.streams.records import Out
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker

TOPICS = (SCORE.name, METRIC.name)


async def _say(bootstrap: str, *keys: str) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect(TOPICS)
    await sender.send([Out(topic=topic, key=key.encode(), value=b"{}") for topic in TOPICS for key in keys])
    await sender.close()


async def _read(reader: TailReader, count: int) -> set[tuple[str, str]]:
    heard: set[tuple[str, str]] = set()
    async with asyncio.timeout(60):
        while len(heard) < count:
            heard |= {(one.topic, (one.key or b"").decode()) for one in await reader.read()}
    return heard


async def test_all_that_topics_hold_is_read_before_what_comes(broker: EmbeddedBroker | KafkaBroker) -> None:
    broker.apply_topics(3)
    await _say(broker.bootstrap, "a", "b", "c")
    reader = TailReader(broker.cluster, TOPICS, client_id="test", whole=True)
    await reader.connect()
    assert not await reader.caught_up()
    assert await _read(reader, 6) == {(topic, key) for topic in TOPICS for key in "abc"}
    assert await reader.caught_up()
    await _say(broker.bootstrap, "d")
    assert await _read(reader, 2) == {(topic, "d") for topic in TOPICS}
    await reader.close()


async def test_from_the_end_nothing_is_read_twice_and_nothing_is_waited_for(
    broker: EmbeddedBroker | KafkaBroker,
) -> None:
    broker.apply_topics(3)
    await _say(broker.bootstrap, "a")
    reader = TailReader(broker.cluster, TOPICS, client_id="test")
    await reader.connect()
    assert await reader.caught_up()
    await _say(broker.bootstrap, "b")
    assert await _read(reader, 2) == {(topic, "b") for topic in TOPICS}
    await reader.close()


async def test_what_was_said_shortly_before_is_heard_and_nothing_older_or_of_later(
    broker: EmbeddedBroker | KafkaBroker,
) -> None:
    broker.apply_topics(1, DATED_BY_CLIENTS)
    now_ms = SystemClock().wall_ms()
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
        for key, ms in (("old", now_ms - 60_000), ("later", now_ms + 1_800_000), ("recent", now_ms - 2_000)):
            await producer.send_and_wait(SCORE.name, key=key.encode(), value=b"{}", partition=0, timestamp_ms=ms)
    reader = TailReader(broker.cluster, TOPICS, client_id="test", back_ms=6_000, now_ms=lambda: now_ms)
    await reader.connect()
    assert await _read(reader, 1) == {(SCORE.name, "recent")}
    await _say(broker.bootstrap, "new")
    assert await _read(reader, 2) == {(topic, "new") for topic in TOPICS}
    await reader.close()


async def test_empty_topics_are_read_whole_at_once(broker: EmbeddedBroker | KafkaBroker) -> None:
    broker.apply_topics(3)
    reader = TailReader(broker.cluster, TOPICS, client_id="test", whole=True)
    await reader.connect()
    assert await reader.caught_up()
    await reader.close()
