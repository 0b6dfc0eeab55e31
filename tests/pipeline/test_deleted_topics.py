"""A deleted topic stays deleted, on a broker that creates each topic that a client asks for: Kafka's default."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slacktide.schemas.topics import ALLOCATABLE, COMMAND, OUTCOME, SAMPLE, SERVICE_SLOPE, Topic
from slacktide.streams.kafka import NodeReader, Sender
from slacktide.streams.records import Out
from testbed.brokers import KafkaBroker, running
from testbed.one_machine import SLACKTIDE, VirtualNode, eventually
from testbed.waiting import soon

pytestmark = pytest.mark.kafka

START_S, WATCH_S = 60.0, 6.0
STREAM = [SLACKTIDE, "stream", "--metrics-port", "0"]
AGENT = [SLACKTIDE, "agent", "--metrics-port", "0"]
BRIDGE = """
import asyncio, logging, sys
from slacktide.agents.clock import SystemClock
from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka import Following, TailReader
logging.basicConfig(level=logging.INFO)
reader = TailReader(Cluster(sys.argv[1]), (sys.argv[2],), client_id="bridge")
async def read(records, now_s): pass
asyncio.run(Following(reader, away="test", clock=SystemClock()).run(lambda: print("reading"), read))
"""
"""How the bridge, the scheduler's part and the descheduler read; the rest of them needs an API server."""


@pytest.fixture(scope="module")
def creating_broker() -> Iterator[KafkaBroker]:
    """Apache Kafka, which creates what is asked for."""
    with running(lambda folder: KafkaBroker(folder, settings={"auto.create.topics.enable": "true"})) as broker:
        yield broker


@contextlib.contextmanager
def process(command: list[str], folder: Path, until: str) -> Iterator[None]:
    """A part as a process of its own, once its output has this text."""
    output = folder / "output"
    with output.open("wb") as file:
        part = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        assert eventually(lambda: until in output.read_text(), START_S), output.read_text()
        yield
    finally:
        part.terminate()
        part.wait(60)


@pytest.mark.parametrize(
    ("part", "topic"),
    [("worker", SAMPLE), ("governor", OUTCOME), ("agent", COMMAND), ("bridge", ALLOCATABLE)],
)
def test_no_part_creates_a_topic_that_was_deleted(
    creating_broker: KafkaBroker, tmp_path: Path, part: str, topic: Topic
) -> None:
    """It would have the broker's default of one partition, and wrong settings."""
    creating_broker.apply_topics()
    where = creating_broker.bootstrap
    with VirtualNode(tmp_path) as node:
        command, until = {
            "worker": ([*STREAM, "--bootstrap", where], "partitions assigned"),
            "governor": ([*STREAM, "--bootstrap", where], "elected as the eviction governor"),
            "agent": (
                [*AGENT, "--bootstrap", where, *node.arguments, "--state-folder", str(tmp_path / "state")],
                "connected to",
            ),
            "bridge": ([sys.executable, "-uc", BRIDGE, where, topic.name], "reading"),
        }[part]
        with process(command, tmp_path, until):
            creating_broker.delete(topic.name)
            until_s = time.monotonic() + WATCH_S
            while time.monotonic() < until_s:
                assert topic.name not in creating_broker.topics()
                time.sleep(0.2)


@pytest.mark.nightly
async def test_a_node_does_without_deleted_slopes_and_reads_new_ones(
    creating_broker: KafkaBroker,
) -> None:
    creating_broker.apply_topics(1)
    cluster, asked = creating_broker.cluster, 0
    reader = NodeReader(cluster, "node-1", client_id="test", fetch_wait_ms=50, due=lambda: True)
    sender = Sender(cluster, client_id="test", acks="all", timeout_s=5)
    await reader.connect()
    await soon(reader.read, "all slopes", enough=lambda got: got.slopes_whole)
    client = reader._consumer._client
    ask = client._metadata_update

    def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return ask(*given)

    client._metadata_update = counted
    creating_broker.delete(SERVICE_SLOPE.name)
    await soon(reader.read, "none", enough=lambda got: not got.slopes_whole)
    asked, until_s = 0, time.monotonic() + 3.0
    while time.monotonic() < until_s:
        await reader.read()
    assert asked <= 3, "it asks no more for the topic"
    assert SERVICE_SLOPE.name not in creating_broker.topics()

    creating_broker.apply_topics(1)
    reader._slopes_look_s = 0.0
    await sender.connect([SERVICE_SLOPE.name])
    await sender.send([Out(topic=SERVICE_SLOPE.name, key=b"shop/web", value=b"{}", partition=0)])
    assert await soon(reader.read, "new ones", enough=lambda got: got.slopes)
    await reader.close()
    await sender.close()
