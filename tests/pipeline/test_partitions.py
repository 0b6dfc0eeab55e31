"""An operator adds partitions to the topic of samples alone: workers report what is missing, and go on afterwards."""

import re

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from slacktide.schemas.topics import SAMPLE
from slacktide.streams.engine.session import KEYED_BY_NODE, unequal
from testbed.brokers import KafkaBroker
from testbed.samples import keyframe
from testbed.stream_rig import PARTITIONS, Rig, until

pytestmark = pytest.mark.kafka

ALTER = re.compile(r"kafka-topics --bootstrap-server (\S+) --alter --topic (\S+) --partitions (\d+)")
MORE = PARTITIONS + 2
NODES = [f"node-{number}" for number in range(20)]


async def alter(bootstrap: str, topics: dict[str, int]) -> None:
    """What the command does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({name: NewPartitions(count) for name, count in topics.items()})
    finally:
        await admin.close()


async def test_a_worker_names_each_topic_that_lacks_partitions_and_answers_once_they_are_there(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slacktide.streams.kafka.group.METADATA_MS", 1_000)
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig, rig.worker() as running:
        await alter(rig.bootstrap, {SAMPLE.name: MORE})
        await until(lambda: "kafka-topics" in running.health.not_ready, "the worker reports it")
        commands = ALTER.findall(running.health.not_ready)
        assert {name for _, name, _ in commands} == {topic.name for topic in KEYED_BY_NODE} - {SAMPLE.name}
        assert {(where, count) for where, _, count in commands} == {(rig.bootstrap, str(MORE))}
        await alter(rig.bootstrap, {name: int(count) for _, name, count in commands})
        await running.ready()
        samples = [keyframe(1, node) for node in NODES]
        await rig.send(samples)
        answers = await rig.answered(samples)

    assert {answer.node for answer in answers} == set(NODES)


def test_equal_counts_are_no_trouble() -> None:
    assert unequal({"a": 3, "b": 3}, "k:1") == ""
