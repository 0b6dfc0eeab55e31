"""The test bed keeps its promises: on either broker topics are fresh, and an outage ends."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from slacktide.schemas.topics import COMMAND
from testbed.brokers import EmbeddedBroker, KafkaBroker

PARTITION = TopicPartition(COMMAND.name, 0)


async def _write(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=COMMAND.acks) as producer:
        await producer.send_and_wait(COMMAND.name, b"{}", key=b"node-1", partition=0)


async def _records(bootstrap: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        return (await consumer.end_offsets([PARTITION]))[PARTITION]


@pytest.mark.parametrize("time", ["first", "second"])
async def test_each_test_finds_its_topics_empty(broker: EmbeddedBroker | KafkaBroker, time: str) -> None:
    broker.apply_topics(partitions=2)
    assert await _records(broker.bootstrap) == 0

    await _write(broker.bootstrap)

    assert await _records(broker.bootstrap) == 1


async def test_an_outage_ends_on_the_same_port(broker: EmbeddedBroker | KafkaBroker) -> None:
    """The embedded broker forgets, Kafka remembers; topics are applied anew in both cases."""
    broker.apply_topics(partitions=2)
    await _write(broker.bootstrap)

    broker.stop()
    broker.start()
    broker.apply_topics(partitions=2)

    assert await _records(broker.bootstrap) == (1 if broker.kind == "kafka" else 0)
