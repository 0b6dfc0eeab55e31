"""The dashboards: every query parses, names metrics that are served, and a running stack has data for it."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import POLICY, SAMPLE
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.brokers import free_port
from testbed.one_machine import NODE, Up, VirtualNode, eventually, policy
from testbed.prometheus import promtool, served, tool

FILES = sorted((Path(__file__).parents[2] / "deploy/grafana").glob("*.json"))
DASHBOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in FILES}
GIVEN = {"$__range_s": "3600", "$__range": "1h", "$node": NODE}
"""What Grafana puts in."""
GIB = 1 << 30
ELSEWHERE = ("slacktide_descheduling_", "slacktide_bridge_", "slacktide_scheduler_", "slacktide_console_")
"""Served only beside an API server, or by a console, which the stack in Docker has."""
PATIENCE_S = 60.0


def queries() -> list[str]:
    found = [
        target["expr"]
        for dashboard in DASHBOARDS.values()
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    for name, text in GIVEN.items():
        found = [query.replace(name, text) for query in found]
    assert not [query for query in found if "$" in query]
    return found


def test_there_are_a_node_and_the_cluster_and_no_panel_is_empty() -> None:
    assert DASHBOARDS.keys() == {"node", "cluster"}
    for dashboard in DASHBOARDS.values():
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
        assert all(panel["targets"] and panel["title"] for panel in dashboard["panels"])


@pytest.mark.story
@pytest.mark.prometheus
def test_every_query_parses(tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    code, said = promtool("check", "rules", file)

    assert (code, f"SUCCESS: {len(rules)} rules found" in said) == (0, True), said


def test_every_query_is_over_metrics_that_are_served() -> None:
    assert {name for query in queries() for name in re.findall(r"\bslacktide_\w+", query)} <= served()


@contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[str]:
    """A Prometheus that scrapes these each second; its address."""
    jobs = [{"job_name": name, "static_configs": [{"targets": [at]}]} for name, at in targets.items()]
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    listen = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={config}", f"--web.listen-address={listen}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=log, stderr=log)
    try:
        yield f"http://{listen}"
    finally:
        process.terminate()
        process.wait(60)


def answer(prometheus: str, query: str) -> list[Any]:
    """What it has for a query."""
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            told = json.load(response)
    except OSError:  # not up yet
        return []
    found: list[Any] = told["data"]["result"]
    return found


async def put(bootstrap: str, *records: Out) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="1", timeout_s=5)
    await sender.connect(sorted({record.topic for record in records}))
    await sender.send(records)
    await sender.close()


@pytest.mark.story
@pytest.mark.prometheus
async def test_a_running_stack_has_data_for_every_query(tmp_path: Path) -> None:
    """A limit, an eviction that is wanted, and records that nobody can use, as an operator would see them."""
    (tmp_path / "node").mkdir()
    with VirtualNode(tmp_path / "node") as node:
        node.policy.write_text(json.dumps(policy(memoryEvictThresholdPercent=60, memoryEvictLowerPercent=55)))
        with Up(tmp_path, *node.arguments, "--policy", str(node.policy)) as up:
            up.wait_logged("first applied decision", within_s=PATIENCE_S)
            node.machine.pods["uid-batch-0"].mem_bytes = 22 * GIB
            bad = [
                Out(topic=POLICY.name, key=b"policy", value=b"oops"),
                Out(topic=SAMPLE.name, key=b"x", value=b"oops"),
            ]
            await put(up.bootstrap, *bad)
            targets = {part: up.url(part).removeprefix("http://") for part in ("agent", "stream")}
            with prometheus(tmp_path, targets) as asked:
                its = [one for one in queries() if not any(name in one for name in ELSEWHERE)]
                without = [one for one in its if not eventually(lambda q=one: answer(asked, q), PATIENCE_S)]
                nodes = answer(asked, 'count(slacktide_agent_cpu_milli{of="used"})')
    assert without == []
    assert [value for _, value in (one["value"] for one in nodes)] == ["1"]
