"""Who is cancelled while closing a client of Kafka leaves no connection open."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.brokers import EmbeddedBroker

CLOSED_S = 60.0


def connections(port: int) -> int:
    """Of this process, to a port."""
    sockets = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return sum(row[9] in sockets and int(row[2].rpartition(":")[2], 16) == port for row in rows)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """It would close what was left open, some time later."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("times", [1, 3])
async def test_none_is_left_open(embedded_broker: EmbeddedBroker, times: int) -> None:
    """Each task that waits for one that was cancelled is cancelled, too, and cancels it once more."""
    embedded_broker.apply_topics()
    sender = Sender(Cluster(embedded_broker.bootstrap), client_id="test", timeout_s=5.0)
    port = int(embedded_broker.bootstrap.rpartition(":")[2])
    await sender.connect([OUTCOME.name])
    await sender.send([Out(topic=OUTCOME.name, key=b"node-1", value=b"{}")])
    assert connections(port)

    closing = asyncio.create_task(sender.close())
    for _ in range(times):
        await asyncio.sleep(0)
        closing.cancel()
    await asyncio.wait({closing})

    until_s = time.monotonic() + CLOSED_S
    while connections(port) and time.monotonic() < until_s:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    assert not connections(port)
    assert closing.cancelled()
