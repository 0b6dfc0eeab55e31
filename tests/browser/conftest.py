"""Two consoles: one beside a machine under Slacktide, and one that shows what a file holds."""

import asyncio
import concurrent.futures
import math
import time
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from slacktide.agents.clock import SystemClock
from slacktide.deploy.console.history.recorder import TOPICS
from slacktide.deploy.console.run import FILE
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.outcome import Spent
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.background import Background
from testbed.brokers import free_port
from testbed.chains import evicted
from testbed.console import HOSTILE, Shown, chromium, console, jobs_and_queue, record
from testbed.one_machine import NODE, VirtualNode, eventually, one_machine
from testbed.services import LATENCY, profile, services

LIVED_S = 6
RECORDED_S = 240
DAY_S = 20
FOLLOWED = {topic.name for topic in TOPICS}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, until the file ends: while it is driven, no other test of the process can run an event loop."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A service with a day of twenty seconds, batch work, an eviction, a dead letter, Jobs and a queue."""
    folder = tmp_path_factory.mktemp("console")
    with one_machine(folder) as (node, up):
        up.wait_logged(r"first (applied decision .* s after the start, )?(decision )?by the stream")
        with console(folder, up.bootstrap, store=folder / "history") as url, _Days(node):
            assert eventually(lambda: b'"alpha"' in _cluster(url))
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _put(up.bootstrap)).result()
            time.sleep(LIVED_S)
            yield Shown(url=url)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """What a file holds of nodes with hostile names, with no Kafka."""
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / FILE, [NODE, *HOSTILE], RECORDED_S)
    with console(folder, f"127.0.0.1:{free_port()}", store=folder) as url:
        yield Shown(url=url)


def _cluster(url: str) -> bytes:
    with urllib.request.urlopen(f"{url}/api/cluster", timeout=60) as answer:
        return bytes(answer.read())


class _Days(Background):
    """The service's load goes up and down."""

    def __init__(self, node: VirtualNode) -> None:
        super().__init__()
        self._node = node

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self._node.service.demand_milli = round(2_500 + 2_000 * math.sin(time.monotonic() / DAY_S * 2 * math.pi))


async def _put(bootstrap: str) -> None:
    now_ms = SystemClock().wall_ms()
    act = evicted(9_000, node=NODE, spent=Spent(evictions=1), observed_ms=now_ms, acted_ms=now_ms + 8)
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    records = [
        one
        for one in (*await jobs_and_queue(), *services(None, [profile(), profile("shop/cache", **LATENCY)]))
        if one.topic in FOLLOWED
    ]
    await sender.connect(sorted({OUTCOME.name, SAMPLE.name, *(one.topic for one in records)}))
    await sender.send([Out(topic=one.topic, key=one.key, value=one.value) for one in records])
    await sender.send([Out(topic=OUTCOME.name, key=NODE.encode(), value=encode(act))])
    await sender.send([Out(topic=SAMPLE.name, key=NODE.encode(), value=b'{"node":"<b>no sample</b>"')])
    await sender.close()
