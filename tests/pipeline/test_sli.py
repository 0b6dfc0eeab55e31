"""``slacktide sli`` as a process between a server that answers like Prometheus and a broker."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.service import ServiceSli
from slacktide.schemas.topics import SERVICE_SLI
from slacktide.streams.kafka import read_topic
from testbed.brokers import EmbeddedBroker
from testbed.console import HTML
from testbed.parts import Part, running_part
from testbed.recorded_cluster import prometheus
from testbed.waiting import soon

P99 = "histogram_quantile(0.99, sum by (le, namespace, deployment) (rate(x_bucket[1m])))"
NOW_S = SystemClock().wall_ms() / 1_000
BY_NODE = 'p99{job="by node"}'


class Server:
    """Answers each query with the series that a test sets, or with a status and a text."""

    def __init__(self) -> None:
        self.series: dict[str, list[dict[str, object]]] = {}
        self.refusal: tuple[int, str] | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                [query] = parse_qs(url.query)["query"]
                outer.asked.append(query)
                assert url.path == "/prom/api/v1/query"
                result = {"resultType": "vector", "result": outer.series.get(query, [])}
                status, text = outer.refusal or (200, json.dumps({"status": "success", "data": result}))
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/prom/"

    @contextmanager
    def serving(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._http.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().serving() as one:
        yield one


def series(value: str, at_s: float, **labels: str) -> dict[str, object]:
    return {"metric": labels, "value": [at_s, value]}


async def published(bootstrap: str) -> list[ServiceSli]:
    records = [one async for one in read_topic(Cluster(bootstrap), SERVICE_SLI.name)]
    found = [decode(one.value, ServiceSli) for one in records]
    assert [one.key for one in records] == [one.service.encode() for one in found]
    return sorted(found, key=lambda one: (one.service, one.node))


@contextmanager
def running(folder: Path, url: str, bootstrap: str, queries: Sequence[str]) -> Iterator[Part]:
    asked = [part for query in queries for part in ("--query", query)]
    where = ("--prometheus", url, "--bootstrap", bootstrap, "--every", "10s", "--target", "50")
    with running_part(folder, "sli", *where, *asked) as part:
        yield part


async def test_each_series_of_a_service_becomes_a_record_and_all_else_is_counted(
    embedded_broker: EmbeddedBroker, server: Server, tmp_path: Path
) -> None:
    embedded_broker.apply_topics()
    at_s = NOW_S
    server.series[P99] = [
        series("0.0125", at_s, namespace="shop", deployment="web"),
        series("NaN", at_s, namespace="shop", deployment="idle"),
        series("0.5", at_s, namespace="shop", deployment=HTML),
        series("0.5", at_s),
    ]
    server.series[BY_NODE] = [series("1.5", at_s, namespace="shop", statefulset="db", node="node-1")]
    with running(tmp_path, server.url, embedded_broker.bootstrap, [P99, BY_NODE]) as part:
        part.wait(lambda: part.metric("slacktide_sli_published_total") == 2, "two records")
        part.wait_ready()
        assert part.metric("slacktide_sli_skipped_total") == 3
        db, web = await published(embedded_broker.bootstrap)
        assert (db.service, db.node, db.p99_us) == ("shop/db", "node-1", 1_500_000)
        assert (web.service, web.node, web.p99_us) == ("shop/web", "", 12_500)
        assert (web.observed_ms, web.span_ms, web.target_us) == (round(at_s * 1_000), 60_000, 50_000)
        part.wait(lambda: part.metric("slacktide_sli_published_total") == 4, "the next round")
        assert part.stop() == 0


async def test_a_server_that_refuses_is_named_with_what_to_do_and_asked_again(
    embedded_broker: EmbeddedBroker, server: Server, tmp_path: Path
) -> None:
    embedded_broker.apply_topics()
    server.series["p99"] = [series("0.1", NOW_S, namespace="shop", deployment="web")]
    server.refusal = 401, "no"
    with running(tmp_path, server.url, embedded_broker.bootstrap, ["p99"]) as part:
        part.wait(lambda: "Give --token-file FILE" in part.log_text, "the refusal")
        assert server.url in part.log_text
        assert part.metric("slacktide_sli_queries_failed_total") == 3
        assert "answered 401" in part.ask("fresh")
        for body in ('{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}', "[" * 100_000):
            server.refusal = 200, body
            asked = len(server.asked)
            part.wait(lambda asked=asked: len(server.asked) > asked + 3, "another round")
        assert "the query returns a scalar" in part.log_text
        assert "did not answer like Prometheus" in part.log_text
        server.refusal = None
        await soon(lambda: published(embedded_broker.bootstrap), "a record", part=part)
        part.wait(lambda: part.ask("fresh").startswith("200"), "what is new")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "nothing to publish: give --prometheus URL, and --query PROMQL at least once"),
        (["--prometheus", "http://127.0.0.1:9090", "--query", "p99", "--every", "1s"], "--every: from 10s to 10m"),
        (["--prometheus", "127.0.0.1:9090", "--query", "p99"], "accepted: http://HOST:PORT"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_the_start(arguments: list[str], why: str) -> None:
    done = CliRunner().invoke(cli, ["sli", *arguments])
    assert done.exit_code
    assert why in done.output


def test_each_line_of_the_variable_is_a_query() -> None:
    given = {"SLACKTIDE_QUERY": f"{P99}\n{BY_NODE}"}
    shown = CliRunner().invoke(cli, ["sli", "--show-settings"], env=given).output
    assert f"{P99}, {BY_NODE}" in shown
    assert "environment SLACKTIDE_QUERY" in shown


@pytest.mark.prometheus
async def test_a_real_prometheus_answers_a_query_of_its_own(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    embedded_broker.apply_topics()
    query = 'label_replace(label_replace(vector(0.25), "namespace", "shop", "", ""), "deployment", "web", "", "")'
    (tmp_path / "prometheus").mkdir()
    with (
        prometheus(tmp_path / "prometheus", None) as url,
        running(tmp_path, url, embedded_broker.bootstrap, ["sum(", query]) as part,
    ):
        [one, *_] = await soon(lambda: published(embedded_broker.bootstrap), "a record", part=part)
        assert (one.service, one.p99_us) == ("shop/web", 250_000)
        assert abs(one.observed_ms - SystemClock().wall_ms()) < 120_000
        assert "rejected a query (400)" in part.log_text
