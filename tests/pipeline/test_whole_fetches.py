"""Whole fetches on real brokers: the worker's consumer takes them, and they hold what every other reader finds."""

import asyncio
from contextlib import aclosing

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from slacktide.agents.clock import SystemClock
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.columns.batches import taken
from slacktide.streams.engine import transport
from slacktide.streams.kafka import read_topic, record_of
from slacktide.streams.kafka.fetched import at_once
from slacktide.streams.records import Place, Record
from slacktide.streams.taken import Taken
from testbed.batches import append, batch
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker
from testbed.samples import body_of, keyframe, sample
from testbed.stream_rig import Rig

BEGIN_MS = round(SystemClock().wall_ms()) - 60_000
BATCH_MS = BEGIN_MS + 1_000
CODECS = (None, "gzip", "snappy", None, "lz4", "zstd")


async def fetched(bootstrap: str, count: int, *, whole: bool = True) -> list[Record]:
    """So many records, by partition and offset; not whole: as the client's public interface makes a record of each."""
    found: dict[Place, Taken] = {}
    consumer = AIOKafkaConsumer(
        SAMPLE.name,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=transport.WHOLE_BYTES_MAX,
        value_deserializer=at_once if whole else None,
    )
    async with consumer, asyncio.timeout(60):
        while sum(map(len, found.values())) < count:
            by_place = await consumer.getmany(timeout_ms=300)
            for place, more in zip(by_place, taken(list(by_place.values())), strict=True):
                found.setdefault(Place(*place), Taken()).extend(more)
                assert (consumer.highwater(place) or 0) > more.offsets[-1]
    return [record for place, one in sorted(found.items()) for record in one.records(*place)]


async def as_others_read(bootstrap: str) -> list[Record]:
    async with aclosing(read_topic(Cluster(bootstrap), SAMPLE.name)) as records:
        found = [record if isinstance(record, Record) else record_of(record) async for record in records]
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def write(bootstrap: str, codec: str | None, values: list[bytes], partition: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5) as producer:
        sent = [
            await producer.send(
                SAMPLE.name, value, key=b"node-1", partition=partition, timestamp_ms=BEGIN_MS + at,
                headers=[("ce_id", b"%d" % at), ("ce_none", b"")],
            )
            for at, value in enumerate(values)
        ]  # fmt: skip
        await asyncio.gather(*sent)


@pytest.mark.kafka
@pytest.mark.parametrize("dated_by", ["clients", "broker"])
async def test_batches_of_every_codec_on_one_partition_are_read_as_by_every_other_reader(
    kafka_broker: KafkaBroker, dated_by: str
) -> None:
    kafka_broker.apply_topics(2, DATED_BY_CLIENTS if dated_by == "clients" else {})
    bootstrap = kafka_broker.bootstrap
    for round_, codec in enumerate(CODECS * 2):
        values = [b"%d/%d " % (round_, at) * (at + 1) for at in range(40 if round_ % 2 else 1)]
        await write(bootstrap, codec, values, partition=round_ % 5 // 4)
    await append(bootstrap, SAMPLE.name, 0, batch(0, [b"x" * 400_000], key=b"node-1", timestamp_ms=BATCH_MS))

    others = await as_others_read(bootstrap)
    found = await fetched(bootstrap, len(others))

    assert found == others
    assert await fetched(bootstrap, len(others), whole=False) == others
    fixed = {record.timestamp_ms for record in found} <= set(range(BEGIN_MS, BEGIN_MS + 100)) | {BATCH_MS}
    assert fixed == (dated_by == "clients")


async def test_so_they_are_on_the_embedded_broker(embedded_broker: EmbeddedBroker) -> None:
    embedded_broker.apply_topics(2)
    for number in range(30):
        await write(embedded_broker.bootstrap, None, [b"%d/%d" % (number, at) for at in range(number % 3 + 1)])

    others = await as_others_read(embedded_broker.bootstrap)
    assert await fetched(embedded_broker.bootstrap, len(others)) == others


async def test_a_worker_answers_as_well_by_the_clients_public_interface(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "at_once", None)
    samples = [keyframe(1), *(sample(seq) for seq in range(2, 600))]
    await rig.send(samples)
    async with rig.worker():
        await rig.answered(samples)

    assert all(len(each) == 1 for each in rig.answers.values()), "answered once"


async def test_other_consumers_of_the_process_read_records(rig: Rig) -> None:
    """Whole fetches are one consumer's choice."""
    samples = [keyframe(1), sample(2)]
    async with rig.worker():
        await rig.send(samples)
        await rig.answered(samples)
        async with AIOKafkaConsumer(
            SAMPLE.name, bootstrap_servers=rig.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            assert [(await consumer.getone()).value for _ in samples] == [body_of(one) for one in samples]
