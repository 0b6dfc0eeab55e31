"""The console's page of a pod, what counts, and the shadow: each figure with the records that it is of."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from slacktide.deploy.cli.explain.workload_text import pod_text
from slacktide.deploy.console.answers import Question, answer
from slacktide.deploy.console.history import decisions
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.workloads import controller_of, pod_at
from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.outcome import Spent
from slacktide.schemas.placement import PodPlacement, RankedNode, RefusingNodes
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import ALLOCATABLE, METRIC, OUTCOME, PLACEMENT, SCORE, SHADOW_ALLOCATABLE
from slacktide.streams.records import Record
from testbed.chains import Chain, evicted, logged, outcome
from testbed.console import stored
from testbed.samples import GIB, SERVICE, START_MS
from testbed.snapshots import json_text, stable
from testbed.vectors import each_row

POD, NAMES = "jobs/etl-0-x2lqp", ("etl-0-x2lqp", "etl-1-bcdfg", "other-x2lqp")
USE = [PodUse(uid=f"uid-{name}", cpu_milli=300 + at, mem_bytes=GIB, periods=10, throttled_periods=at + 1,
              best_effort_group=True) for at, name in enumerate(NAMES)]  # fmt: skip
PODS = [Pod(uid=f"uid-{name}", namespace="jobs", name=name, qos_label="BE", kube_qos="BestEffort",
            requests=Resources(batch_cpu_milli=500, batch_mem_bytes=GIB)) for name in NAMES]  # fmt: skip
PLACED = PodPlacement(
    pod_uid="uid-etl-0-x2lqp", namespace="jobs", name="etl-0-x2lqp", decided_ms=START_MS + 20_000, asked=5, passed=2,
    refused=[RefusingNodes(reason="stale", count=3, nodes=["node-7"], why="no figures for 30 s")],
    best=[RankedNode(node="node-9", level=10, score_permille=900, bound="scored"),
          RankedNode(node="node-1", level=9, score_permille=812, bound="scored")],
)  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Three minutes: a placement, cuts and raises, an eviction, and a shadow that would sell less."""
    path: Path = tmp_path_factory.mktemp("pods") / "history.sqlite"
    chain = Chain(pods=[SERVICE, *PODS])
    for seq in range(1, 185):
        chain.take(seq, pod_use=[PodUse(uid="ls", cpu_milli=600, mem_bytes=GIB), *USE])
        chain.put(outcome(seq), OUTCOME, at_ms=START_MS + seq * 1_000 + 9)
    chain.put(PLACED, PLACEMENT, key=PLACED.pod_uid, at_ms=START_MS + 20_000)
    act = evicted(150, "etl-0-x2lqp", spent=Spent(evictions=1))
    chain.put(act, OUTCOME, at_ms=START_MS + 150_000)
    stored(path, [*chain.records, *map(shadowed, chain.records)])
    return History(path)


def shadowed(record: Record) -> Record:
    """What a shadow would sell: a quarter less."""
    if record.topic != ALLOCATABLE.name:
        return msgspec.structs.replace(record, topic="nobody's")
    body = decode(record.value, ALLOCATABLE.message)
    less = msgspec.structs.replace(body, batch_cpu_milli=(body.batch_cpu_milli or 0) * 3 // 4, policy_version="shadow")
    return logged(less, SHADOW_ALLOCATABLE, key="node-1", offset=record.offset, at_ms=record.timestamp_ms)


def asked(history: History, question: str, after_s: int, **given: str) -> Any:
    return answer(history, question, Question(at_ms=START_MS + 1_000 * after_s, given=given))


def test_a_pod_has_its_use_its_bounds_and_why_its_node_was_taken(history: History, snapshot) -> None:
    assert stable(json_text(asked(history, "pod", 160, pod=POD))) == snapshot


def test_each_figure_of_a_pod_opens_the_text_of_explain(history: History, snapshot) -> None:
    its = pod_at(history, POD, START_MS + 160_000, ())
    assert its.explanation is not None
    opened = []
    for figure in asked(history, "pod", 160, pod=POD)["figures"]:
        lines = asked(history, "explain", 160, pod=POD, figure=figure)["lines"]
        assert "\n".join(lines).count(pod_text(its.explanation)) == 1
        opened.append(lines[0])
    assert "\n".join(opened) == snapshot


@each_row("pod", "controller")
def test_the_controller_is_known_by_the_name_that_kubernetes_generates(pod: str, controller: str) -> None:
    assert controller_of(pod) == controller


def test_the_other_pods_are_those_of_its_controller(tmp_path: Path) -> None:
    chain = Chain()
    chain.run(1, 65)
    for number, name in enumerate((*NAMES, "etl-1-bcdfg")):
        act = evicted(40 + number, name, spent=Spent(evictions=1))
        chain.records.append(logged(act, OUTCOME, key="node-1", offset=number, at_ms=act.acted_ms))
    stored(tmp_path / "history.sqlite", chain.records)
    found = asked(History(tmp_path / "history.sqlite"), "pod", 60, pod=POD)
    assert (found["controller"], found["others"]) == ("etl", ["jobs/etl-1-bcdfg"])


def test_what_a_shadow_would_sell_stands_beside_what_is_sold(history: History, snapshot) -> None:
    found = asked(history, "policy", 100)
    lines = asked(history, "explain", 100, node="node-1", figure="batch_cpu_milli", shadow="1")["lines"]
    assert stable("\n".join([json_text(found["shadow"]), f"of {found['nodes_count']}", *lines])) == snapshot


def test_counts_over_a_span_open_their_points(history: History, snapshot) -> None:
    series = asked(history, "node", 120, node="node-1", span="60000")["series"]["by"]
    for figure, topic in (("raises", "command"), ("guarded", "outcome")):
        lines = asked(history, "explain", 120, node="node-1", figure=figure, span="60000")["lines"]
        assert lines[0].startswith(f"{figure} {sum(series[figure])}: the sum of ")
        assert all(f"slacktide.node.{topic}.v1" in line for line in lines[1:])
    lines = asked(history, "explain", 120, node="node-1", figure="decided_p95_ms", span="60000")["lines"]
    assert lines[0] == snapshot


def test_what_is_requested_is_of_the_score_that_has_it(history: History, snapshot) -> None:
    line = asked(history, "explain", 120, node="node-1", figure="requested_cpu_milli")["lines"][0]
    row = history.row_at("node-1", START_MS + 120_000)
    assert row is not None
    assert row.places["score"][0] == SCORE.name
    assert line.rpartition(":")[2] == str(row.places["score"][2])
    assert line == snapshot


def test_a_topics_rate_opens_its_offsets(history: History) -> None:
    found = next(one for one in asked(history, "records", 170)["topics"] if one.topic == METRIC.name)
    lines = asked(history, "explain", 170, topic=METRIC.name, figure="records")["lines"]
    assert lines[0].startswith(f"records {found.records}: read from {METRIC.name}")
    assert lines[1].startswith(f"newest_offset {found.newest_offset}: ")
    assert sum(int(line.rpartition(": ")[2]) for line in lines[2:]) == found.newest_offset


def test_a_topic_that_was_never_kept_costs_a_read_or_two(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not one of each minute that there is."""
    reads = []
    unpack = decisions.unpack_kept
    monkeypatch.setattr(decisions, "unpack_kept", lambda blob: reads.append(blob) or unpack(blob))
    assert history.decisions._kept("node-1", START_MS + 179_000, ("nobody's",)) == []
    assert len(reads) <= 2
