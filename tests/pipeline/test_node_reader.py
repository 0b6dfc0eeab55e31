"""A node's reader leaves its neighbours' answers in Kafka until its own is due, and decodes none of them."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import COMMAND, POLICY, SERVICE_SLOPE
from slacktide.streams.kafka import NodeReader, Sender
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.waiting import soon

NODE, NEIGHBOURS = "node-1", 15


async def test_while_no_answer_is_due_it_fetches_seldom_and_at_once_when_one_is(
    broker: EmbeddedBroker | KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.apply_topics(1)
    is_due, got = True, list[Record]()
    reader = NodeReader(Cluster(broker.bootstrap), NODE, client_id="test", fetch_wait_ms=50, due=lambda: is_due)
    sender = Sender(Cluster(broker.bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([COMMAND.name, POLICY.name])
    await reader.connect()
    fetcher, fetches = reader._consumer._fetcher, 0
    request = fetcher._proc_fetch_request

    def counted(*given: Any) -> Any:
        nonlocal fetches
        fetches += 1
        return request(*given)

    monkeypatch.setattr(fetcher, "_proc_fetch_request", counted)

    async def read() -> None:
        while True:
            found = await reader.read()
            got.extend([*found.commands, *found.policies])

    async def send(topic: str, key: str) -> None:
        await sender.send([Out(topic=topic, key=key.encode(), value=b"{}", partition=0)])

    async def neighbours() -> int:
        """How many fetches their answers cost."""
        before = fetches
        for number in range(NEIGHBOURS):
            await send(COMMAND.name, f"node-1{number}")
            await asyncio.sleep(0.1)
        return fetches - before

    reading = asyncio.create_task(read())
    await send(COMMAND.name, NODE)
    await soon(lambda: asyncio.sleep(0, len(got)), "it follows", enough=lambda count: count == 1)
    many = await neighbours()
    is_due = False
    few = await neighbours()
    assert few < many / 2, f"{few} instead of {many}"
    is_due = True
    reader.wake()
    await send(COMMAND.name, NODE)
    await soon(lambda: asyncio.sleep(0, len(got)), "its answer came", enough=lambda count: count == 2)
    is_due = False
    await send(POLICY.name, "policy")
    await soon(lambda: asyncio.sleep(0, len(got)), "a policy comes all the same", enough=lambda count: count == 3)
    assert {one.key for one in got} == {NODE.encode(), b"policy"}
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await reader.close()
    await sender.close()


async def test_slopes_that_it_may_not_read_any_more_stop_nothing_else(
    broker: EmbeddedBroker | KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.apply_topics(1)
    reader = NodeReader(Cluster(broker.bootstrap), NODE, client_id="test", fetch_wait_ms=50, due=lambda: True)
    sender = Sender(Cluster(broker.bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([POLICY.name, SERVICE_SLOPE.name])

    async def send(topic: str, key: str) -> None:
        await sender.send([Out(topic=topic, key=key.encode(), value=b"{}", partition=0)])

    async def read() -> list[str]:
        """What came, with the marks of slopes."""
        got = await reader.read()
        marks = ["anew"] * got.slopes_anew + ["whole"] * got.slopes_whole
        return [*marks, *(one.key.decode() for one in (*got.policies, *got.slopes))]

    await send(SERVICE_SLOPE.name, "shop/web")
    await reader.connect()
    assert "anew" in (first := await read())
    seen = await soon(read, "all slopes", enough=lambda got: "whole" in got)
    assert "shop/web" in [*first, *seen]
    assert "anew" not in await read()

    refused = TopicPartition(SERVICE_SLOPE.name, 0)
    fetcher = reader._consumer._fetcher
    await soon(lambda: asyncio.sleep(0, fetcher._records), "nothing is fetched ahead", enough=lambda held: not held)
    fetcher._set_error(refused, TopicAuthorizationFailedError(SERVICE_SLOPE.name))
    assert await read() == []
    assert refused not in reader._consumer.assignment()
    await send(SERVICE_SLOPE.name, "shop/db")
    await send(POLICY.name, "policy")
    assert await soon(read, "a policy") == ["policy"]

    fetcher._set_error(TopicPartition(POLICY.name, 0), TopicAuthorizationFailedError(POLICY.name))
    with pytest.raises(LogError):
        await read()
    monkeypatch.setattr(reader, "_slopes_look_s", 0.0)
    seen = await soon(read, "slopes again")
    assert seen[0] == "anew"

    async def more() -> list[str]:
        seen.extend(await read())
        return seen

    await soon(more, "all slopes again", enough=lambda got: "whole" in got)
    assert [one for one in seen if one.startswith("shop/")] == ["shop/web", "shop/db"]
    assert [vars(one)["topic"] for one in caplog.records if "slopes" in one.getMessage()] == [SERVICE_SLOPE.name]
    await reader.close()
    await sender.close()
