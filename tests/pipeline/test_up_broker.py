"""The embedded broker of the one-machine stack."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from slacktide.agents.kafka import create_topics
from slacktide.deploy.cli import tied
from slacktide.deploy.cli.broker import BrokerError, EmbeddedBroker
from slacktide.schemas.topics import TOPICS

OWNER = """
import asyncio, sys
from slacktide.deploy.cli.broker import EmbeddedBroker
async def main():
    broker = EmbeddedBroker()
    await broker.start()
    print(broker.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def gone(pid: int, within_s: float = 5.0) -> bool:
    until_s = time.monotonic() + within_s
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True


async def test_it_answers_when_it_has_started_and_is_gone_when_it_was_stopped() -> None:
    broker = EmbeddedBroker()
    await broker.start()
    pid = broker.pid
    assert await create_topics(broker.bootstrap) == [topic.name for topic in TOPICS]

    await broker.stop()
    assert (broker.running, broker.pid) == (False, None)
    assert gone(pid)
    await broker.stop()


async def test_it_comes_back_at_the_same_address_having_forgotten_everything() -> None:
    broker = EmbeddedBroker()
    await broker.start()
    bootstrap = broker.bootstrap
    await create_topics(bootstrap)
    os.kill(broker.pid, signal.SIGKILL)
    assert await broker.wait() == -signal.SIGKILL

    await broker.start()
    assert broker.bootstrap == bootstrap
    assert await create_topics(bootstrap) == [topic.name for topic in TOPICS]
    await broker.stop()


async def test_a_taken_port_is_refused_not_mistaken_for_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(BrokerError, match=f"127.0.0.1:{port}: Address already in use; choose another port"):
            await EmbeddedBroker(port).start()


async def test_a_broker_that_ends_at_its_start_says_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    script = tmp_path / "tansu"
    script.write_text("#!/bin/sh\necho no room\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CALF_TANSU_BIN", str(script))

    with pytest.raises(BrokerError, match="did not start:\nno room"):
        await EmbeddedBroker().start()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_never_outlives_its_owner(how: signal.Signals) -> None:
    """An owner that is killed cannot stop it: the kernel does."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    with owner:
        pid = int(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        owner.send_signal(how)

    assert gone(pid)


async def test_a_child_that_does_not_end_in_time_is_made_to() -> None:
    stubborn = tied.popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    await asyncio.sleep(0.2)
    assert await tied.end(stubborn, 0.3) is False
    assert stubborn.returncode == -signal.SIGKILL

    assert await tied.end(tied.popen(["sleep", "60"]), 5) is True
