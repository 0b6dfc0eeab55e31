"""Compressed records on Apache Kafka: each codec is read, and a batch that inflates without end costs itself only."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import DeadLetter, UnreadableBatch
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, INVENTORY, POLICY, SAMPLE, SCORE
from slacktide.streams.kafka import WHOLE, History, NodeReader, Span, Spans, Tail, TailReader, read_topic
from slacktide.streams.kafka.admin import set_configs
from slacktide.streams.records import Record
from testbed.batches import Stored, append, bomb
from testbed.brokers import KafkaBroker
from testbed.feed import Workers
from testbed.samples import body_of, keyframe, sample
from testbed.stream_rig import Rig, partition_of
from testbed.waiting import soon

CODECS = ("gzip", "snappy", "lz4", "zstd")
NODE = "node-1"
PLACE = partition_of(NODE)
BOMBS = {"gzip": 256 << 20, "snappy": 20 << 20, "lz4": 200 << 20, "zstd": 256 << 20}
"""Within a batch of one megabyte. Kafka inflates each once, as it takes it."""
GROWS_BYTES_MAX = 128 << 20

pytestmark = pytest.mark.kafka


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    return kafka_broker


async def send(rig: Rig, codec: str | None, first: int, count: int = 20) -> list:
    samples = [keyframe(seq, NODE) if seq == first else sample(seq, NODE) for seq in range(first, first + count)]
    async with AIOKafkaProducer(bootstrap_servers=rig.bootstrap, compression_type=codec, linger_ms=20) as producer:
        sent = [await producer.send(SAMPLE.name, body_of(s), key=s.node.encode(), partition=PLACE) for s in samples]
        await asyncio.gather(*sent)
    return samples


async def letters(rig: Rig, offsets: Collection[int]) -> list[DeadLetter]:
    """All, as soon as each of the batches has one."""

    async def all_there() -> list[DeadLetter]:
        return [decode(record.value, DeadLetter) for record in await rig.read(DEAD_LETTER.name)]

    return await soon(all_there, "dead letters", enough=lambda found: {one.offset for one in found} >= {*offsets})


async def test_each_codec_is_read(rig: Rig) -> None:
    """Whether a producer compresses, or the topic's ``compression.type`` has the broker do so."""
    async with rig.worker():
        for number, codec in enumerate(CODECS):
            await rig.answered(await send(rig, codec, 1 + 100 * number))
        for number, codec in enumerate(CODECS, start=len(CODECS)):
            await set_configs(rig.cluster, {SAMPLE.name: {"compression.type": codec}})
            await rig.answered(await send(rig, None, 1 + 100 * number))
    assert not await rig.read(DEAD_LETTER.name)


async def test_a_batch_that_inflates_without_end_costs_itself_only(rig: Rig) -> None:
    bombs: dict[str, Stored] = {codec: bomb(codec, size_bytes) for codec, size_bytes in BOMBS.items()}
    async with Workers(rig) as workers:
        pid = workers.start("worker")
        await rig.answered(await send(rig, None, 1))
        before_bytes = most_bytes(pid)
        offsets = []
        for number, codec in enumerate(BOMBS, start=1):
            offsets.append(await append(rig.bootstrap, SAMPLE.name, PLACE, bombs[codec]))
            await rig.answered(await send(rig, codec, 1 + 100 * number))
        found = await letters(rig, offsets)
        grown_bytes = most_bytes(pid) - before_bytes

    # At least once: on a busy machine a session may end and begin anew.
    assert {(one.topic, one.partition, one.offset, one.last_offset) for one in found} == {
        (SAMPLE.name, PLACE, offset, offset) for offset in offsets
    }
    assert {one.offset: one.reason for one in found} == {
        offset: f"a batch cannot be read: its {codec} data inflates to more than 16777216 bytes"
        for codec, offset in zip(BOMBS, offsets, strict=True)
    }
    assert {one.reader for one in found} == {"stream/worker"}
    assert grown_bytes < GROWS_BYTES_MAX


def most_bytes(pid: int) -> int:
    """The most memory that the process has held."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


async def test_every_reader_goes_on_behind_it(kafka_broker: KafkaBroker) -> None:
    """And hands on what stands for it, so that whoever has dead letters to write writes one."""
    kafka_broker.apply_topics(1)
    bootstrap = kafka_broker.bootstrap
    bad = bomb("zstd", 20 << 20)
    reader = NodeReader(Cluster(bootstrap), NODE, client_id="test", fetch_wait_ms=100, due=lambda: True)
    ends = TailReader(Cluster(bootstrap), [SCORE.name], client_id="test")
    await reader.connect()
    await ends.connect()
    topics = (COMMAND.name, INVENTORY.name, POLICY.name, SAMPLE.name, SCORE.name)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            for value in (b"before", b"behind"):
                await producer.send_and_wait(topic, value, key=NODE.encode(), partition=0)
                if value == b"before":
                    assert await append(bootstrap, topic, 0, bad) == 1

    heard: dict[str, list[Record]] = {"commands": [], "policies": [], "inventories": []}
    async with asyncio.timeout(60):
        while any(len(records) < 3 for records in heard.values()):
            got = await reader.read()
            for name in heard:
                heard[name] += getattr(got, name)
    for records in heard.values():
        check(records)
    tail: list[Record] = []
    async with asyncio.timeout(60):
        while len(tail) < 3:
            tail += await ends.read()
    check(tail)
    await reader.close()
    await ends.close()

    async with Tail(Cluster(bootstrap), 100) as latest:
        check((await latest.read({(POLICY.name, 0): WHOLE})).records)
    async with History(Cluster(bootstrap), 100) as history:
        check(await history.span(SAMPLE.name, 0, before=None, since_ms=0))
    async with Tail(Cluster(bootstrap), 100) as looking:
        check((await looking.read({(SAMPLE.name, 0): WHOLE})).records)
        check((await looking.read({(SAMPLE.name, 0): WHOLE}, lambda record: record.value is not None)).records)
    async with Spans(Cluster(bootstrap), 100) as spans:
        span = Span(topics=[SAMPLE.name], whole=frozenset([SAMPLE.name]), since_ms=0, until_ms=1 << 45)
        check([record async for record in spans.read(span, {SAMPLE.name: 1})])
    async with aclosing(read_topic(Cluster(bootstrap), SAMPLE.name)) as records:
        check([record async for record in records])


def check(records: list[Record]) -> None:
    by_offset = sorted(records, key=lambda record: record.offset)
    assert [(record.offset, record.value) for record in by_offset] == [(0, b"before"), (1, b""), (2, b"behind")]
    assert isinstance(by_offset[1].value, UnreadableBatch)
