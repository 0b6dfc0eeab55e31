"""The changes to aiokafka: made in each process, and for no other version than they are written for."""

import asyncio
import gc
import struct
import tomllib
from pathlib import Path
from typing import Self

import aiokafka.client
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaTimeoutError, NotControllerError
from aiokafka.producer.message_accumulator import BatchBuilder, MessageBatch
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.structs import BrokerMetadata, TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka import Sender, patches

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_no_request_for_metadata_creates_a_topic() -> None:
    for made in (aiokafka.client.MetadataRequest(["t"]), aiokafka.admin.client.MetadataRequest(["t"])):
        assert made.build(MetadataRequest_v5).allow_auto_topic_creation is False


@pytest.mark.parametrize("other", ["0.13.0", "0.15.0", "1.0"])
def test_another_version_of_the_client_is_refused_with_what_to_do(other: str) -> None:
    with pytest.raises(ImportError, match=rf'aiokafka {other} is installed.*pip install "aiokafka==0\.14\.\*"'):
        patches.check_version(other)


def test_what_is_installed_is_what_they_are_written_for() -> None:
    patches.check_version(aiokafka.__version__)

    assert "aiokafka>=0.14,<0.15" in PYPROJECT["project"]["dependencies"]
    assert patches.WRITTEN_FOR == "0.14."


def test_the_client_leaves_no_error_that_nobody_looks_at() -> None:
    """Of a batch that fails while it waits for its turn; the tests of outages see the others."""
    told: list[str] = []

    async def fail() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        batch = MessageBatch(TopicPartition("t", 0), BatchBuilder(1 << 20, 0), ttl=1.0, linger_time=0.0)
        batch.failure(KafkaTimeoutError())
        await asyncio.sleep(0)
        del batch
        gc.collect()

    asyncio.run(fail())
    assert told == []


async def test_a_cluster_without_a_controller_is_an_error_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka that stood still has none for some seconds."""
    admin = AIOKafkaAdminClient()

    async def nothing_new() -> bool:
        return True

    monkeypatch.setattr(admin._client, "force_metadata_update", nothing_new)
    with pytest.raises(NotControllerError, match="the cluster has no controller") as told:
        await admin.create_topics([])

    assert told.value.retriable


async def test_a_connection_reads_a_fetch_without_stopping() -> None:
    async with SlowBroker() as broker:
        host, port = broker.address
        connection = aiokafka.conn.AIOKafkaConnection(host, port)
        broker.may_answer.set()
        await connection.connect()
        assert connection._reader._limit == patches.READER_BYTES
        connection.close()
        async with asyncio.timeout(60):
            await broker.closed.wait()


class SlowBroker:
    """Accepts a connection and answers which requests it knows, once it may; it answers nothing else."""

    def __init__(self) -> None:
        self.asked, self.may_answer, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.address = ("", 0)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        (correlation,) = struct.unpack_from(">i", await reader.readexactly(size), 4)
        self.asked.set()
        await self.may_answer.wait()
        versions = [(3, 0, 5), (18, 0, 0)]
        body = struct.pack(">ihi", correlation, 0, len(versions)) + b"".join(struct.pack(">hhh", *v) for v in versions)
        writer.write(struct.pack(">i", len(body)) + body)
        while await reader.read(4096):
            pass
        self.closed.set()
        writer.close()


async def test_a_connection_attempt_that_is_given_up_leaves_no_connection_open() -> None:
    async with SlowBroker() as broker:
        broker.may_answer.set()
        sender = Sender(Cluster(f"127.0.0.1:{broker.address[1]}"), client_id="test", timeout_s=9.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sender.connect(())
        async with asyncio.timeout(60):
            await broker.closed.wait()


async def test_a_client_that_is_closed_while_it_connects_leaves_no_connection_open() -> None:
    async with SlowBroker() as broker:
        client = aiokafka.client.AIOKafkaClient()
        client.cluster._brokers = {0: BrokerMetadata(0, *broker.address, None)}
        connecting = asyncio.create_task(client._get_conn(0))
        await broker.asked.wait()
        await client.close()
        broker.may_answer.set()

        assert await connecting is None
        async with asyncio.timeout(60):
            await broker.closed.wait()
