"""The console's server: who gets what, for how many, and how it ends."""

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from prometheus_client import REGISTRY

from slacktide.agents.clock import SystemClock
from slacktide.deploy.console.guarding import CertificateError, certificate, token_file
from slacktide.deploy.console.history.follower import Follower
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import OBJECTS, TOPICS
from slacktide.deploy.console.history.store import Store
from slacktide.deploy.console.server import Listen, serving
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker, free_port, running
from testbed.cluster.pki import Pki
from testbed.console import HTML, console, jobs_and_queue, record
from testbed.one_machine import SLACKTIDE
from testbed.samples import START_MS
from testbed.stream_rig import until

TOKEN = "correct-horse-battery"
BEARER = f"Authorization: Bearer {TOKEN}".encode()
NODES = ["alpha", "beta"]
PATHS = (
    "/",
    "/index.html",
    "/app.js",
    "/words/en.json",
    "/api/cluster",
    "/api/ticks",
    "/api/explain",
    "/metrics",
    "/none",
    "/live/x",
)
VIEWERS = 50


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    path = tmp_path_factory.mktemp("history") / "history.sqlite"
    record(path, NODES, 180)
    return History(path)


@asynccontextmanager
async def served(
    history: History, token: str = "", health: Health | None = None
) -> AsyncIterator[tuple[str, ClientSession]]:
    listen = Listen(host="127.0.0.1", port=0, token=(lambda: token) if token else None)
    async with (
        serving(history, listen, health or Health()) as url,
        ClientSession(url, connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60)) as session,
    ):
        yield url, session


async def test_without_the_token_every_path_but_live_answers_401(history: History) -> None:
    async with served(history, TOKEN) as (_, session):
        for path in PATHS:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic d3Jvbmc6d3Jvbmc="}):
                async with session.get(path, headers=headers) as answer:
                    assert answer.status == 401, path
                    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
                    assert "slacktide" not in await answer.text()
        async with session.get("/live") as answer:
            assert answer.status == 200
        async with session.get("/api/cluster", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status == 200


async def test_a_token_whose_file_changes_is_in_force_without_a_restart(history: History, tmp_path: Path) -> None:
    """One that is too short, or a file that is gone, changes nothing."""
    path = tmp_path / "token"
    path.write_text(TOKEN)
    listen = Listen(host="127.0.0.1", port=0, token=token_file(path))

    async def status(session: ClientSession, token: str) -> int:
        async with session.get("/api/cluster", headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.status

    async with serving(history, listen, Health()) as url, ClientSession(url) as session:
        path.write_text(f"{TOKEN}-another\n")
        assert [await status(session, one) for one in (TOKEN, f"{TOKEN}-another")] == [401, 200]
        path.write_text("short")
        assert [await status(session, one) for one in (TOKEN, "short", f"{TOKEN}-another")] == [401, 401, 200]
        path.unlink()
        assert await status(session, f"{TOKEN}-another") == 200
        path.write_text(TOKEN)
        assert await status(session, TOKEN) == 200


async def test_its_metrics_show_the_history_and_who_looks(history: History) -> None:
    """With the token, as a Prometheus brings it."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with served(history, TOKEN) as (_, session):
        async with session.get("/api/ticks", headers=headers) as ticks:
            await ticks.content.readuntil(b"data")
            async with session.get("/api/cluster", headers=headers) as answer:
                assert answer.status == 200
            async with session.get("/api/none%00", headers=headers) as answer:
                assert answer.status == 400
            found = await metrics(session, headers)
        bounds = history.bounds()
        assert found["slacktide_console_viewers"] == 1
        assert found["slacktide_console_history_bytes"] == bounds.size_bytes
        assert found["slacktide_console_history_limit_bytes"] == bounds.size_bytes_max
        lag_s = (SystemClock().wall_ms() - (bounds.newest_ms or 0)) / 1_000
        assert found["slacktide_console_lag_seconds"] == pytest.approx(lag_s, abs=60)
        assert found['slacktide_console_answer_seconds_count{question="cluster"}'] >= 1
        assert found['slacktide_console_answer_seconds_count{question="unknown"}'] >= 1
        assert not [name for name in found if name.startswith("slacktide_console") and "none" in name]
        await until(lambda: REGISTRY.get_sample_value("slacktide_console_viewers") == 0, "the viewer is gone")


async def metrics(session: ClientSession, headers: dict[str, str] | None = None) -> dict[str, float]:
    async with session.get("/metrics", headers=headers) as answer:
        assert answer.status == 200
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def test_with_a_certificate_it_serves_tls_and_renews_it_without_a_restart(
    history: History, tmp_path: Path
) -> None:
    """What cannot be used changes nothing; the next good pair is served."""
    folder = tmp_path / "tls"
    first, second = (put_certificate(tmp_path / name, folder, name) for name in ("a", "b"))
    first()
    listen = Listen(host="127.0.0.1", port=0, token=lambda: TOKEN, cert_folder=folder)
    async with serving(history, listen, Health()) as url:
        assert url.startswith("https://")
        assert await served_name(url, tmp_path / "a") == "a"
        (folder / "tls.key").write_text("no key")
        assert await served_name(url, tmp_path / "a") == "a"
        second()
        assert await served_name(url, tmp_path / "b") == "b"
        async with ClientSession(url) as session:
            with pytest.raises(ClientError):
                await session.get("/live", ssl=ssl.create_default_context(cafile=tmp_path / "a/ca.crt"))
            trust = ssl.create_default_context(cafile=tmp_path / "b/ca.crt")
            async with session.get("/live", ssl=trust) as answer:
                assert answer.status == 200


def put_certificate(made: Path, folder: Path, name: str) -> Callable[[], None]:
    certificate, key = Pki(made).certificate(name, f"/CN={name}", "IP:127.0.0.1")

    def put() -> None:
        folder.mkdir(exist_ok=True)
        for source, target in ((certificate, "tls.crt"), (key, "tls.key")):
            (folder / target).write_bytes(source.read_bytes())

    return put


async def served_name(url: str, authority: Path) -> str:
    """The common name of the certificate that a client sees who trusts the authority."""
    trust = ssl.create_default_context(cafile=authority / "ca.crt")
    host, _, port = url.removeprefix("https://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trust)
    subject = writer.get_extra_info("peercert")["subject"]
    writer.close()
    return str(dict(pair for part in subject for pair in part)["commonName"])


def test_a_certificate_that_cannot_be_used_ends_it_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("none")
    (tmp_path / "tls.key").write_text("none")
    with pytest.raises(CertificateError, match=r"--cert-folder .*; accepted: tls.crt and tls.key in PEM"):
        certificate(tmp_path)


def test_two_consoles_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with console(tmp_path, "127.0.0.1:1"):
        arguments = ["--bootstrap", "127.0.0.1:1", "--listen", f"127.0.0.1:{free_port()}"]
        command = [SLACKTIDE, "console", *arguments, "--store", str(tmp_path / "history")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "another console uses this folder" in done.stderr


async def test_every_answer_has_the_headers_that_hold_a_page(history: History) -> None:
    async with served(history) as (_, session):
        for path in (*PATHS, "/live"):
            async with session.get(path) as answer:
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"], path
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("head", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff", 401, id="token that is not UTF-8"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic \xff", 401, id="login that is not ASCII"),
        pytest.param(b"GET /api/pod?pod=%ff HTTP/1.1\r\nHost: a\r\n" + BEARER, 200, id="pod that is not UTF-8"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: \xff", 401, id="host that is not UTF-8"),
    ],
)
async def test_no_bytes_of_a_request_give_a_traceback(history: History, head: bytes, status: int) -> None:
    async with served(history, TOKEN) as (url, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(head + b"\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert b"Content-Security-Policy: default-src 'none'" in answer
    assert b"Traceback" not in answer


async def test_what_fails_unexpectedly_is_answered_and_logged(history: History, monkeypatch, caplog) -> None:
    monkeypatch.setattr("slacktide.deploy.console.server.Live.ask", None)
    async with served(history) as (_, session), session.get("/api/cluster") as answer:
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (500, "nosniff")
        assert "Traceback" not in await answer.text()
    assert "cannot handle a request" in caplog.text


async def test_it_only_reads_and_only_its_own_files(history: History) -> None:
    async with served(history) as (_, session):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, "/api/cluster") as answer:
                assert answer.status == 405
        for path in ("/../answers.py", "/%2e%2e/answers.py", "/views/../../answers.py", "/views", "/%00"):
            async with session.get(path) as answer:
                assert answer.status in {404, 400}, path
        async with session.get("/", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/none", 400),
        ("/api/node?node=nobody", 404),
        ("/api/node?node=alpha&span=x", 400),
        (f"/api/node?node=alpha&span={'9' * 5_000}", 400),
        (f"/api/explain?node=alpha&span={'9' * 5_000}", 400),
        (f"/api/records?of=slacktide.node.outcome.v1%200:{'9' * 5_000}", 200),
        ("/api/explain?node=nobody", 404),
        ("/api/cluster?at=%3Cscript%3E", 200),
        ("/api/cluster?at=1", 200),
        (f"/api/cluster?at={10**30}", 200),
        ("/api/pod?pod=%00", 200),
        ("/api/records?of=%27%3B--", 200),
        ("/api/jobs?job=%3Cb%3E", 404),
        ("/api/jobs?job=a/b/c", 404),
        ("/api/explain?job=nothing", 404),
        ("/api/jobs?filter=%00&at=x", 200),
    ],
)
async def test_odd_questions_get_a_reason(history: History, path: str, status: int) -> None:
    async with served(history) as (_, session), session.get(path) as answer:
        assert answer.status == status
        assert (await answer.json())["error" if status >= 400 else "at_ms"]


async def test_a_moment_is_shown_as_it_was_recorded(history: History) -> None:
    """The same for a page that comes later, and as explain has it."""
    at_ms = START_MS + 100_000
    async with served(history) as (_, session):
        async with session.get(f"/api/cluster?at={at_ms}") as answer:
            columns = (await answer.json())["columns"]
        rows = history.cluster_at(at_ms)
        assert columns["node"] == NODES == [row.node for row in rows]
        assert columns["used_cpu_milli"] == [row.used_cpu_milli for row in rows]
        async with session.get(f"/api/explain?node=alpha&figure=sold_cpu_milli&at={at_ms}") as answer:
            lines = (await answer.json())["lines"]
    assert lines[0].startswith(f"sold_cpu_milli {rows[0].sold_cpu_milli:,}m at ")
    assert any(line.strip() == f"= batch-cpu: {rows[0].sold_cpu_milli:,}m" for line in lines)


async def test_fifty_viewers_follow_one_fold(history: History) -> None:
    """Each gets a tick a second and the cluster with it; the process grows by little."""
    process, seen = psutil.Process(), [0] * VIEWERS

    async def viewer(session: ClientSession, number: int) -> None:
        async with session.get("/api/ticks", timeout=ClientTimeout(total=None)) as ticks:
            async for line in ticks.content:
                if line.startswith(b"data"):
                    assert json.loads(line[5:])["now_ms"] > START_MS
                    async with session.get("/api/cluster") as answer:
                        assert len((await answer.json())["columns"]["node"]) == len(NODES)
                    seen[number] += 1

    async with served(history) as (_, session):
        before = process.memory_info().rss
        viewers = [asyncio.create_task(viewer(session, number)) for number in range(VIEWERS)]
        await until(lambda: min(seen) >= 3, "three ticks for each viewer")
        assert process.memory_info().rss - before < 40e6
        for one in viewers:
            one.cancel()
        await asyncio.gather(*viewers, return_exceptions=True)


async def test_live_says_what_is_wrong(history: History) -> None:
    health = Health()
    health.not_live = "the follower ended"
    async with served(history, health=health) as (_, session), session.get("/live") as answer:
        assert (answer.status, await answer.text()) == (503, "the follower ended\n")


async def test_an_empty_history_is_shown_as_such(tmp_path: Path) -> None:
    store = Store(tmp_path / "history.sqlite")
    async with served(History(store.path)) as (_, session):
        for path in ("cluster", "node", "pod", "records", "policy", "jobs"):
            async with session.get(f"/api/{path}") as answer:
                assert answer.status == 200, path
    store.close()


async def test_jobs_and_queue_are_shown_as_their_topics_stand(tmp_path: Path) -> None:
    """A Job that goes, goes from the page; one record that nobody can read changes nothing."""
    with running(EmbeddedBroker) as broker:
        broker.apply_topics()
        records = await jobs_and_queue()
        async with followed(tmp_path, broker.bootstrap) as session:
            await put(broker.bootstrap, records)
            found = await shown(session, lambda one: len(one["jobs"]) == 3 and len(one["workloads"]) == 3)
            assert [one["job"] for one in found["jobs"]] == ["jobs/bad", "jobs/etl", f"jobs/{HTML}"]
            assert found["queues"] == [["gpu", "all", "2 cpu", "2 cpu", "-", 2, 1, 1]]
            gone = [one for one in records if one.key == b"bad"]
            bad = [msgspec.structs.replace(one, value=b"{") for one in records if one.key == b"etl"]
            await put(broker.bootstrap, [*bad, *(msgspec.structs.replace(one, value=None) for one in gone)])
            found = await shown(session, lambda one: len(one["jobs"]) == 2)
            assert [one["job"] for one in found["jobs"]] == ["jobs/etl", f"jobs/{HTML}"]


async def test_topics_of_jobs_and_queue_are_followed_once_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slacktide.deploy.console.history.follower.LOOK_MS", 500)
    with running(EmbeddedBroker) as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        old = [NewTopic(topic.name, 1, 1) for topic in TOPICS if topic not in OBJECTS]
        await admin.create_topics(old)
        await admin.close()
        async with followed(tmp_path, broker.bootstrap) as session:
            assert not (await shown(session, lambda one: True))["jobs"]
            broker.apply_topics()
            await put(broker.bootstrap, await jobs_and_queue())
            await shown(session, lambda one: len(one["jobs"]) == 3 and len(one["workloads"]) == 3)


@asynccontextmanager
async def followed(folder: Path, bootstrap: str) -> AsyncIterator[ClientSession]:
    """A console that follows a log, from the moment on at which it has begun to."""
    follower = Follower(Cluster(bootstrap), Store(folder / "history.sqlite"), SystemClock())
    following = asyncio.create_task(follower.run())
    history = History(follower.store.path, lambda: follower.recorder)
    async with served(history) as (_, session):
        await until(lambda: not follower.trouble, "the topics are read")
        yield session
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    follower.store.close()


async def put(bootstrap: str, records: Sequence[Record]) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect(sorted({one.topic for one in records}))
    await sender.send([Out(topic=one.topic, key=one.key, value=one.value) for one in records])
    await sender.close()


async def shown(session: ClientSession, there: Callable[[Any], bool]) -> Any:
    """The page of Jobs and the queue, once that is there."""
    async with asyncio.timeout(60):
        while True:
            async with session.get("/api/jobs") as answer:
                assert answer.status == 200
                if there(found := await answer.json()):
                    return found
            await asyncio.sleep(0.2)


AT_ONCE_S = 8
"""Less than what a process may take that is cut off."""


def test_the_process_ends_at_once_though_somebody_looks(tmp_path: Path) -> None:
    """Kafka is away all the time: it serves, and it ends."""
    record(tmp_path / "history.sqlite", NODES, 70)
    with (
        console(tmp_path, "127.0.0.1:1", store=tmp_path) as url,
        subprocess.Popen(["curl", "-sN", f"{url}/api/ticks"], stdout=subprocess.PIPE) as viewer,
    ):
        assert viewer.stdout is not None
        while not (line := viewer.stdout.readline()).startswith(b"data"):
            assert line or viewer.poll() is None
        assert json.loads(line[5:])["note"] == "stalled"
        told_s = time.monotonic()
    assert time.monotonic() - told_s < AT_ONCE_S


@pytest.mark.parametrize(
    "arguments", [("--listen", "0.0.0.0:9470"), ("--listen", "127.0.0.1:9470", "--token-file", "short")]
)
def test_off_loopback_it_does_not_start_without_a_good_token(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "short").write_text("123\n")
    done = subprocess.run([SLACKTIDE, "console", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "token" in done.stderr
