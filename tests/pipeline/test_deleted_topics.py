"""A deleted topic stays deleted, on a broker that creates each topic that a client asks for: Kafka's default."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.schemas.topics import ALLOCATABLE, COMMAND, OUTCOME, SAMPLE, Topic
from testbed.brokers import KafkaBroker, running
from testbed.one_machine import SLACKTIDE, VirtualNode, eventually

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
