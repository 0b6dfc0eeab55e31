"""Long-running processes: endpoints, logs, signals."""

import asyncio
import gc
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.endpoints import Endpoints, EndpointsError
from slacktide.schemas.health import Health
from testbed.kubelet import Certificates
from testbed.vectors import each_row

PROCESS = """
import asyncio, logging, sys, time
from slacktide.deploy.runtime import process
from slacktide.schemas.errors import LogError

async def work(stop, health):
    logging.getLogger("work").info("working")
    {body}

process.DRAIN_S = 1.0
process.run("worker", process.ProcessSettings(log_format="json"), work)
"""


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def started(body: str) -> subprocess.Popen[str]:
    """A process that has begun its work."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS.format(body=body)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while "working" not in process.stderr.readline():
        assert process.poll() is None
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, list[dict]]:
    """Its exit code, and the lines that it still wrote."""
    _, written = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in written.splitlines()]


def test_each_question_is_answered_with_its_reason() -> None:
    """200 and ok, or 503 and what is wrong, as the parts of the process keep it."""
    health = Health()
    with Endpoints("127.0.0.1", 0, health) as endpoints:

        def answers() -> list[tuple[int, str]]:
            return [get(f"{endpoints.url}/{name}") for name in ("live", "ready", "fresh")]

        assert answers() == [(200, "ok\n"), (503, "starting\n"), (503, "nothing seen yet\n")]
        health.not_live, health.not_ready, health.not_fresh = "broken", "", "last sample 9 s ago"
        assert answers() == [(503, "broken\n"), (200, "ok\n"), (503, "last sample 9 s ago\n")]


def test_the_index_links_each_page_and_an_unknown_path_names_those_that_exist() -> None:
    """A person who follows the address that a process logs at start finds what it serves."""
    with Endpoints("127.0.0.1", 0, Health(), name="agent") as endpoints:
        status, page = get(f"{endpoints.url}/")
        links = re.findall(r'href="([^"]+)"', page)
        answers = [get(endpoints.url + link) for link in links]
        unknown = get(f"{endpoints.url}/health")

    assert (status, links) == (200, ["/metrics", "/live", "/ready", "/fresh"])
    assert "<h1>slacktide agent</h1>" in page
    assert 404 not in {code for code, _ in answers}
    assert answers[0][0] == 200
    assert "# TYPE process_cpu_seconds_total counter" in answers[0][1], "Prometheus text"
    assert unknown == (404, "no page /health; available: /, /metrics, /live, /ready, /fresh\n")


def test_a_process_whose_loop_hangs_is_not_live() -> None:
    """The endpoints have threads of their own: they tell what the loop cannot."""
    with Endpoints("127.0.0.1", 0, Health(), lambda: "the event loop has been blocked for 12 s") as endpoints:
        assert get(f"{endpoints.url}/live") == (503, "the event loop has been blocked for 12 s\n")


class Hand:
    """A clock that is set by hand."""

    now_s = 0.0

    def mono_ns(self) -> int:
        return round(self.now_s * 1e9)


def test_a_process_is_not_live_when_one_of_its_parts_has_stopped() -> None:
    """The loop turns, and the part that is to come round does not: only a restart helps."""
    health, clock = Health(), Hand()
    beat = process._Beat(health, clock)
    said = []
    for second in range(400):
        clock.now_s = float(second)
        health.turned("sending samples")
        if second < 100:
            health.turned("sampling")
        beat.look()
        said.append(beat.stuck())
    clock.now_s += 11

    assert set(said[: 100 + int(process.STOPPED_S)]) == {""}
    assert said[-1] == "sampling stopped 300 s ago"
    assert beat.stuck() == "the event loop has been blocked for 11 s"


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    with Endpoints("127.0.0.1", 0, Health()) as endpoints:
        port = int(endpoints.url.rpartition(":")[2])

        with pytest.raises(EndpointsError, match=f"127.0.0.1:{port}: .*--metrics-port"):
            Endpoints("127.0.0.1", port, Health())


STAYS = """
    async def stays():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    task = asyncio.create_task(stays())
    await asyncio.sleep(0.1)
    raise LogError("the log is gone")
"""


LEAVES_A_THREAD = """
    import threading
    threading.Thread(target=time.sleep, args=(60,)).start()
    raise LogError("the log is gone")
"""


@pytest.mark.parametrize("body", [STAYS, LEAVES_A_THREAD], ids=["a task", "a thread"])
def test_a_process_that_fails_ends_although_something_in_it_does_not(body: str) -> None:
    """With its reason: whoever restarts it waits for its end."""
    code, lines = ended(started(body.strip()))

    assert code == 1
    assert [line["message"] for line in lines][-2:] == ["the log is gone", "did not stop within 1 s: exiting"]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_told_to_stop_it_finishes_in_order(name: str) -> None:
    process = started('await stop.wait(); logging.getLogger("work").info("drained")')
    process.send_signal(signal.Signals[name])
    code, lines = ended(process)

    assert code == 0
    assert [line["message"] for line in lines if line["logger"] == "work"] == ["drained"]


def test_told_twice_it_leaves_at_once() -> None:
    process = started("await asyncio.sleep(60)")
    process.terminate()
    while "stopping" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)

    assert ended(process)[0] == 128 + signal.SIGINT


@pytest.mark.parametrize("body", ["await asyncio.sleep(60)", "await stop.wait(); time.sleep(60)"])
def test_a_drain_that_hangs_is_cut_short(body: str) -> None:
    """Also where it hangs in a call that never gives the loop a turn."""
    process = started(body)
    process.terminate()
    code, lines = ended(process)

    assert code == 1
    assert lines[-1]["message"] == "did not stop within 1 s: exiting"


@each_row("raised", "message", "error")
def test_an_error_is_logged(raised: str, message: str, error: str | None) -> None:
    code, lines = ended(started(raised))

    assert code == 1
    assert lines[-1]["level"] == "error"
    assert not message or lines[-1]["message"] == message
    assert ("error" in lines[-1]) is (error is not None)
    assert error is None or error in lines[-1]["error"]


def formatted(style, **fields: object) -> str:
    record = logging.makeLogRecord({"name": "agent", "levelname": "WARNING", "levelno": 30, "msg": "late"} | fields)
    return process._Formatter("agent", style).format(record)


def test_a_json_line_carries_the_fields_of_its_part_and_a_human_line_is_short(snapshot) -> None:
    assert formatted(process._json, created=1763712000.25, seq=7, level="mine") == snapshot
    clock, _, said = formatted(process._human, created=1763712000.25, seq=7).partition(" ")
    assert (len(clock), said) == (len("08:00:00"), "agent  warning: late seq=7")


@pytest.mark.parametrize("strange", ["\udcff", 10**30])
def test_no_text_or_number_costs_its_line_of_the_log(strange: object) -> None:
    line = json.loads(formatted(process._json, strange=strange))
    assert line["strange"] == strange


def test_logs_are_json_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    """Format auto: stderr is no terminal here."""
    assert not os.isatty(2)
    code = (
        "import logging; from slacktide.deploy.runtime import process; process.configure('up', 'info', 'auto');"
        "logging.getLogger('x').info('said'); logging.getLogger('x').debug('not said')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    assert [json.loads(line)["message"] for line in capfd.readouterr().err.splitlines()] == ["said"]


BUSY_S = 0.02
"""How long a busy machine keeps a loop from its turn: the server has answered meanwhile."""


def test_a_tls_connection_that_is_given_up_as_it_fails_leaves_no_error_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine its timeout, or the process's end, comes with the answer."""
    certificates = Certificates(tmp_path / "certificates")
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificates.server, certificates.server_key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_refused, args=(listening, trust), daemon=True).start()
        with asyncio.Runner(loop_factory=process.new_loop) as runner:
            for turns in range(1, 6):
                runner.run(_given_up(listening.getsockname()[1], turns))
        listening.shutdown(socket.SHUT_RDWR)
    gc.collect()

    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


def _refused(listening: socket.socket, trust: ssl.SSLContext) -> None:
    """Nobody knows its certificate's authority."""
    with suppress(OSError):
        while True:
            one, _ = listening.accept()
            with suppress(OSError), one:
                trust.wrap_socket(one, server_side=True)


async def _given_up(port: int, turns: int) -> None:
    loop = asyncio.get_running_loop()
    connection = loop.create_connection(asyncio.Protocol, "127.0.0.1", port, ssl=ssl.create_default_context())
    connecting = asyncio.create_task(connection)
    for _ in range(turns):
        await asyncio.sleep(0)
        time.sleep(BUSY_S)  # noqa: ASYNC251 - the loop has no turn
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
