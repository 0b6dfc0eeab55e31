"""Rendered records on real brokers: each is written once, or known to be refused."""

import os
from contextlib import aclosing

import pytest

from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import BACKFILL, COMMAND
from slacktide.streams.kafka import Refused, Rendered, Sender, read_topic
from slacktide.streams.kafka.admin import set_configs
from slacktide.streams.records import Out
from slacktide.streams.rendering import rendered, rendered_headers, rendered_key
from testbed.brokers import EmbeddedBroker, KafkaBroker

HEADERS = [(f"ce_{number}", b"%d" % number) for number in range(9)]


def render(value: bytes | None, key: bytes = b"node-1") -> bytes:
    return rendered(rendered_key(key), value, rendered_headers(HEADERS))


async def written(broker: EmbeddedBroker | KafkaBroker, topic: str) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {}
    async with aclosing(read_topic(broker.cluster, topic)) as records:
        async for record in records:
            assert (record.key, list(record.headers)) == (b"node-1", HEADERS)
            found.setdefault(record.partition, []).append(record.value)
    return found


async def test_rendered_records_are_read_as_any_others(broker: EmbeddedBroker | KafkaBroker) -> None:
    """Among records that the client renders; some partitions have more than one batch holds."""
    broker.apply_topics(3)
    large = [os.urandom(300_000) for _ in range(8)]
    async with Sender(broker.cluster, client_id="test", timeout_s=5) as sender:
        for round_ in range(3):
            batches = [
                Rendered(COMMAND.name, 0, [render(b"%d/%d" % (round_, number)) for number in range(300)]),
                Rendered(COMMAND.name, 1, [render(value) for value in large]),
                Rendered(COMMAND.name, 0, [render(None)]),
            ]
            assert await sender.send_rendered(batches) == [None] * 309
            out = Out(topic=COMMAND.name, partition=2, key=b"node-1", value=b"%d" % round_, headers=HEADERS)
            assert not isinstance((await sender.send_each([out]))[0], Refused)
        assert await sender.send_rendered([]) == []

    found = await written(broker, COMMAND.name)
    assert found == {
        0: [value for round_ in range(3) for value in (*(b"%d/%d" % (round_, number) for number in range(300)), None)],
        1: large * 3,
        2: [b"0", b"1", b"2"],
    }


@pytest.mark.kafka
@pytest.mark.parametrize("acks", ["all", "1"])
async def test_of_many_records_each_is_written_once_or_refused(kafka_broker: KafkaBroker, acks: str) -> None:
    """Two are too large for the topic, one of them for any; others travel with them and behind them."""
    kafka_broker.apply_topics(2)
    await set_configs(kafka_broker.cluster, {BACKFILL.name: {"max.message.bytes": "3000"}})
    values = [b"%d" % number for number in range(40)]
    values[7], values[30] = os.urandom(5_000), os.urandom(2_000_000)
    try:
        async with Sender(kafka_broker.cluster, client_id="test", acks=acks, timeout_s=5) as sender:
            results = await sender.send_rendered(
                [
                    Rendered(BACKFILL.name, 0, [render(value) for value in values]),
                    Rendered(BACKFILL.name, 1, [render(b"other")]),
                ]
            )
            again = await sender.send_rendered([Rendered(BACKFILL.name, 0, [render(b"behind")])])
    finally:
        await set_configs(kafka_broker.cluster, {BACKFILL.name: {"max.message.bytes": "1048588"}})

    refused = {number: one for number, one in enumerate(results) if one is not None}
    assert set(refused) == {7, 30}
    assert refused[7].out == Out(
        topic=BACKFILL.name, partition=0, key=b"node-1", value=values[7], headers=tuple(HEADERS)
    )
    assert "refuses 5,000 bytes: MessageSizeTooLargeError; see max.message.bytes" in refused[7].why
    assert again == [None]
    found = await written(kafka_broker, BACKFILL.name)
    assert sorted(found[0]) == sorted([*(value for at, value in enumerate(values) if at not in refused), b"behind"])
    assert found[1] == [b"other"]


async def test_other_trouble_than_a_refusal_disconnects(embedded_broker: EmbeddedBroker) -> None:
    embedded_broker.apply_topics(2)
    async with Sender(embedded_broker.cluster, client_id="test", timeout_s=1) as sender:
        with pytest.raises(LogError, match=r"has no partition 7: slacktide topics plan"):
            await sender.send_rendered([Rendered(COMMAND.name, 7, [render(b"x")])])
        assert not sender.connected
        with pytest.raises(LogError, match="the connection was lost"):
            await sender.send_rendered([Rendered(COMMAND.name, 0, [render(b"x")])])
