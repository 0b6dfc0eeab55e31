"""The endpoints under attack: who holds connections, drips, or never reads keeps no probe from its answer."""

import gzip
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from slacktide.deploy.runtime.endpoints import CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_S, WRITE_S
from testbed.one_machine import eventually

pytestmark = pytest.mark.exhaustive

SERVER = """
import sys
from slacktide.deploy.runtime.endpoints import Endpoints
from slacktide.schemas.health import Health
from prometheus_client import Gauge
for name in range(int(sys.argv[1])):
    Gauge(f"big_{name}", "A long description of it. " * 100, ["node"]).labels("node").set(name)
with Endpoints("127.0.0.1", 0, Health()) as endpoints:
    print(endpoints.url, flush=True)
    sys.stdin.read()
"""
HELD = 5_000
MIB = 1 << 20


class Server:
    """The endpoints in a process of their own."""

    def __init__(self, metrics: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(metrics)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])
        self.process = psutil.Process(self._process.pid)
        self.get("/metrics")

    def get(self, path: str, **headers: str) -> tuple[int, bytes, float]:
        """Status, body, and how long that took."""
        began_s = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=60) as answer:
            return answer.status, answer.read(), time.monotonic() - began_s

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * HELD)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", b"GET /live HTTP/1.1\r\nX: "], ids=["nothing", "half a request"])
def test_probes_are_answered_while_thousands_hold_connections(server: Server, sent: bytes) -> None:
    before = server.process.memory_info().rss
    with ExitStack() as held:
        for _ in range(HELD):
            one = held.enter_context(server.connect())
            if sent:
                one.send(sent)
        files = server.process.num_fds()
        answers = [server.get(path) for path in ("/live", "/metrics") * 5]
        after = server.process.memory_info().rss

    assert {status for status, _, _ in answers} == {200}
    assert max(took_s for _, _, took_s in answers) < HEAD_S
    assert after - before < 20 * MIB
    assert files <= CONNECTIONS_MAX + 20


def test_who_drips_is_cut_off_in_time(server: Server) -> None:
    """A byte now and then does not buy more time."""
    with server.connect() as slow:
        began_s = time.monotonic()
        slow.settimeout(0.2)
        ended = False
        while not ended and time.monotonic() - began_s < 6 * HEAD_S:
            try:
                slow.send(b"G")
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True

    assert HEAD_S - 0.5 < time.monotonic() - began_s < 5 * HEAD_S


def test_who_never_reads_keeps_nobody_waiting_and_holds_little() -> None:
    server = Server(metrics=500)
    try:
        size = len(server.get("/metrics")[1])
        before = server.process.memory_info().rss
        with ExitStack() as held:
            for _ in range(300):
                one = held.enter_context(socket.socket())
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                one.connect(("127.0.0.1", server.port))
                one.send(b"GET /metrics HTTP/1.1\r\n\r\n")
            live = server.get("/live")
            metrics = server.get("/metrics")
            grown = server.process.memory_info().rss - before
            # The listener, and one that may be closing.
            left = eventually(lambda: len(server.process.net_connections("tcp")) <= 2, WRITE_S + 60, every_s=0.5)
    finally:
        server.close()

    assert size > MIB
    assert (live[0], metrics[0]) == (200, 200)
    assert abs(len(metrics[1]) - size) < 1_000
    assert live[2] < 5
    assert grown < 20 * MIB
    assert left, "who never reads is left"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /live HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"GET /live HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX, b"431"),
        (b"GET /" + b"a" * 100 + b" HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /live HTTP/1.1\r\n\r\nGET /live HTTP/1.1\r\n\r\n", b"200"),
        (b"HEAD /live HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_each_request_has_one_answer_and_the_connection_ends(server: Server, request_: bytes, status: bytes) -> None:
    with server.connect() as client:
        client.sendall(request_)
        answer = b""
        while received := client.recv(4_096):
            answer += received

    assert answer.split(b" ")[1] == status
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer
    assert answer.endswith(b"\r\n\r\n") == request_.startswith(b"HEAD")


def test_prometheus_gets_the_format_that_it_asks_for(server: Server) -> None:
    _, plain, _ = server.get("/metrics")
    _, newer, _ = server.get("/metrics", accept="application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2")
    _, packed, _ = server.get("/metrics", **{"accept-encoding": "gzip"})

    assert (plain.endswith(b"# EOF\n"), newer.endswith(b"# EOF\n")) == (False, True)
    assert b"process_cpu_seconds_total" in gzip.decompress(packed)
