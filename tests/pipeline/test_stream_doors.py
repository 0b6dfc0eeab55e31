"""The streams' door to Kafka, on real brokers: reading whole, reading back, and what the log refuses."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import COMMAND, INVENTORY, POLICY, SAMPLE
from slacktide.streams.kafka import (
    WHOLE,
    Follower,
    History,
    Sender,
    Tail,
    last_of_each_key,
    partition_counts,
    places_of,
)
from slacktide.streams.kafka.connecting import silent
from slacktide.streams.kafka.reader import IDLE_AFTER_S, IDLE_WAIT_MS
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.bad_headers import MARKER, put_bad_header
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker, free_port
from testbed.samples import START_MS, SUPPRESS, body_of, keyframe, policy_record, record_of, sample
from testbed.stream_rig import PARTITIONS, Rig
from testbed.waiting import soon

WAIT_MS = 20


@pytest.fixture
async def rig(broker: EmbeddedBroker | KafkaBroker) -> AsyncIterator[Rig]:
    broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    async with Rig(broker.bootstrap) as rig:
        yield rig


async def test_latest_state_is_read_whole_and_then_what_follows(rig: Rig) -> None:
    await rig.put(INVENTORY.name, [(b"a", b"1", 0), (b"b", b"1", 1), (b"a", b"2", 0), (b"b", None, 1)])
    async with Tail(rig.cluster, WAIT_MS) as latest:
        counts = await partition_counts(rig.cluster, (POLICY.name, INVENTORY.name))
        whole = (await latest.read(places_of(counts, dict.fromkeys(counts, WHOLE)))).records
        await rig.put(POLICY.name, [(b"policy", b"3", 0)])
        followed = await latest.more()
        latest.again()
        again = await latest.more()

    assert [(record.key, record.value) for record in whole if record.partition == 0] == [(b"a", b"1"), (b"a", b"2")]
    assert {(record.key, record.value) for record in last_of_each_key(whole)} == {(b"a", b"2"), (b"b", None)}
    assert [(record.topic, record.value) for record in followed] == [(POLICY.name, b"3")]
    assert len(again) <= 3, "the same once more, as far as it came in one fetch"


async def rested(poll: Callable[[float], Awaitable[list[Record]]]) -> None:
    """Nothing came for so long that the broker holds a fetch for seconds."""
    async with asyncio.timeout(4 * IDLE_AFTER_S):
        assert not any([await poll(IDLE_AFTER_S) for _ in range(3)])


async def test_a_policy_is_read_within_two_seconds_by_a_reader_that_rests(rig: Rig) -> None:
    """Kafka answers at once; the embedded broker looks for records at half of the time that it holds a fetch."""
    async with Tail(rig.cluster, WAIT_MS) as latest:
        await latest.read({(POLICY.name, 0): WHOLE})
        await rested(latest.more)
        await rig.put(POLICY.name, [(b"policy", b"1", 0)])
        since_s = time.monotonic()
        read = await soon(lambda: latest.more(IDLE_WAIT_MS / 1_000), "the record")

    assert [record.value for record in read] == [b"1"]
    assert time.monotonic() - since_s < IDLE_WAIT_MS / 1_000


async def test_a_partition_is_followed_at_once_while_the_broker_holds_a_fetch_of_another(rig: Rig) -> None:
    await rig.put(SAMPLE.name, [(b"a", b"1", 1)])
    async with Follower(rig.cluster, SAMPLE.name, WAIT_MS) as follower:
        await follower.take(0, 0)
        await rested(lambda wait_s: follower.some(1, wait_s))
        since_s = time.monotonic()
        await follower.take(1, 0)
        read = await soon(lambda: follower.some(1), "the record")

    assert [(record.partition, record.value) for record in read] == [(1, b"1")]
    assert time.monotonic() - since_s < IDLE_WAIT_MS / 1_000


async def test_topics_that_are_not_there_have_no_partitions_and_are_not_made(rig: Rig) -> None:
    counts = [await partition_counts(rig.cluster, ("nowhere", SAMPLE.name)) for _ in range(2)]

    assert counts == [{"nowhere": 0, SAMPLE.name: PARTITIONS}] * 2


async def test_a_broker_that_takes_a_connection_and_never_answers_is_given_up_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slacktide.streams.kafka.admin.REQUEST_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        bootstrap = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(LogError, match=f"{bootstrap}: no answer; check that the broker runs"):
            async with asyncio.timeout(60):
                await partition_counts(Cluster(bootstrap), (SAMPLE.name,))


async def test_a_read_back_ends_at_the_position_and_begins_in_time(rig: Rig) -> None:
    """Also where the broker cannot find a record by its time."""
    start_ms = time.time_ns() // 1_000_000 - 120_000  # a broker refuses what is far from its own time
    producer = AIOKafkaProducer(bootstrap_servers=rig.bootstrap)
    await producer.start()
    for second in range(60):
        await producer.send(SAMPLE.name, b"%d" % second, partition=2, timestamp_ms=start_ms + second * 1_000)
    await producer.stop()
    async with History(rig.cluster, WAIT_MS) as history:
        spans = [
            await history.span(SAMPLE.name, 2, before=before, since_ms=start_ms + since * 1_000)
            for before, since in [(50, 30), (60, 0), (10, 20), (0, 0)]
        ]
        newest_first = history.back(SAMPLE.name, 2, before=50, since_ms=start_ms + 30_000, at_once=8)
        backwards = [[int(record.value or b"") for record in some] async for some in newest_first]

    assert [some for some in backwards if some] == [[*range(49, 41, -1)], [*range(41, 33, -1)], [*range(33, 29, -1)]]
    assert [[int(record.value or b"") for record in span] for span in spans] == [
        list(range(30, 50)),
        list(range(60)),
        [],
        [],
    ]


@pytest.mark.kafka
async def test_a_read_back_of_many_nodes_begins_in_time_too(kafka_broker: KafkaBroker) -> None:
    """Where the broker finds a record by its time, however many stand behind it."""
    kafka_broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    start_ms = time.time_ns() // 1_000_000 - 120_000
    async with AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap) as producer:
        for number in range(6_000):
            await producer.send(SAMPLE.name, b"%d" % number, partition=2, timestamp_ms=start_ms + number * 10)
    async with History(kafka_broker.cluster, WAIT_MS) as history:
        span = await history.span(SAMPLE.name, 2, before=6_000, since_ms=start_ms + 1_000)

    assert [record.offset for record in span] == [*range(100, 6_000)]


async def test_a_write_to_a_partition_that_is_not_there_is_the_logs_trouble(rig: Rig) -> None:
    async with Sender(rig.cluster, client_id="test") as sender:
        with pytest.raises(LogError, match=f"{COMMAND.name} has no partition 99"):
            await sender.send([Out(topic=COMMAND.name, partition=99, key=b"k", value=b"v")])


async def test_nobody_at_the_address_is_the_logs_trouble() -> None:
    with pytest.raises(LogError, match="check that the broker runs"):
        async with Sender(Cluster("127.0.0.1:1"), client_id="test"):
            pytest.fail("there is no broker")


async def test_a_header_name_that_is_no_text_stops_nothing(rig: Rig) -> None:
    """The record is read without its headers, and those before and behind it in its batch as they are."""
    await rig.publish(SUPPRESS)
    samples = [keyframe(seq, "node-1") for seq in (1, 2, 3)]
    headers = ("before", MARKER, "behind")
    said = [(b"node-1", body_of(each), name) for each, name in zip(samples, headers, strict=True)]
    await put_bad_header(rig.bootstrap, SAMPLE.name, 1, said)
    async with rig.worker(), Tail(rig.cluster, WAIT_MS) as reader:
        answers = await rig.answered(samples)
        *_, record = (await reader.read({(SAMPLE.name, number): WHOLE for number in range(PARTITIONS)})).records

    assert [answer.answer for answer in answers] == ["set"] * 3
    assert (record.offset, list(record.headers)) == (2, [("behind", b"1")])


@pytest.fixture
async def wordless_broker(kafka_broker: KafkaBroker) -> AsyncIterator[KafkaBroker]:
    """A broker that takes no answer with terms; its topic is as before afterwards, which deleting it would not do."""
    kafka_broker.apply_topics(PARTITIONS)
    worker = Worker("w")
    worker.policy(policy_record())
    size = _size(worker.samples([record_of(keyframe(1, "node-0"))], START_MS))
    await _configure_commands(kafka_broker.bootstrap, {"max.message.bytes": str(size - 100)})
    yield kafka_broker
    await _configure_commands(kafka_broker.bootstrap, {})


@pytest.mark.kafka
async def test_an_answer_that_the_log_refuses_becomes_a_dead_letter_and_the_node_is_answered_skipped(
    wordless_broker: KafkaBroker,
) -> None:
    """And the answers that travelled in its batch go out all the same."""
    wordy, lean = keyframe(1, "node-0"), keyframe(1, "node-4", limits=Limits(be_cfs_quota_us=160_000))
    async with Rig(wordless_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        await rig.send([wordy, lean])
        async with rig.worker():
            answers = await rig.answered([wordy, lean])
            letters = await rig.dead_letters()
            await rig.send([after := sample(2, "node-4", limits=Limits(be_cfs_quota_us=160_000))])
            answers += await rig.answered([after])

    assert [answer.answer for answer in answers] == ["skipped", "keep", "keep"]
    assert ": MessageSizeTooLargeError" in answers[0].reason
    assert [(letter.topic, letter.key) for letter in letters] == [(COMMAND.name, "node-0")]
    assert len(rig.commands) == 3, "each is answered once"


def _size(outs: list[Out]) -> int:
    [out] = [out for out in outs if out.topic == COMMAND.name]
    assert decode(out.value, NodeCommand).answer == "set"
    size: int = DefaultRecordBatchBuilder.estimate_size_in_bytes(out.key, out.value, list(out.headers))
    return size


async def _configure_commands(bootstrap: str, configs: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, COMMAND.name, configs=configs)])
    await asyncio.sleep(0.5)  # the broker takes its own time to heed it
    await admin.close()


async def test_an_address_that_failed_is_not_named_once_the_cluster_answers(embedded_broker: EmbeddedBroker) -> None:
    """The broker may have moved: nobody tries there again."""
    gone = Cluster(f"127.0.0.1:{free_port()}")
    with pytest.raises(LogError):
        await partition_counts(gone, (POLICY.name,))
    assert str(gone) in silent(3)
    await partition_counts(embedded_broker.cluster, (POLICY.name,))
    assert silent(3) == "no answer within 3 s"
