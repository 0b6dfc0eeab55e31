"""The console's history of a real stack: it shows what explain makes of the same records; killed, it goes on."""

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.deploy.console.history.follower import Follower, LogRecords
from slacktide.deploy.console.history.minute import Minute
from slacktide.deploy.console.history.points import POINTS
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import FACTS, TOPICS
from slacktide.deploy.console.history.store import Store
from slacktide.deploy.console.history.view import UNLIMITED, Decision, NodeRow
from slacktide.schemas.topics import NODE_PARTITIONS, OUTCOME
from slacktide.streams.analysis.explain.node import NodeExplanation, explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.analysis.explain.offered import amount
from slacktide.streams.kafka import WHOLE, Tail, partition_counts, partition_of
from slacktide.streams.records import Place, Record
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, running
from testbed.chains import Chain, outcome
from testbed.one_machine import NODE, Up, VirtualNode, eventually, one_machine
from testbed.samples import START_MS
from testbed.waiting import soon

RECORDED_S = 17
NUMBERS = 1_000
RUN = """
import asyncio, sys
from pathlib import Path
from slacktide.agents.clock import SystemClock
from slacktide.deploy.console.history.recorder import FACTS, TOPICS
from slacktide.deploy.console.history.follower import Follower
from slacktide.deploy.console.history.store import Store
from slacktide.schemas.connection import Cluster
asyncio.run(Follower(Cluster(sys.argv[1]), Store(Path(sys.argv[2])), SystemClock()).run())
"""


@dataclass
class Recorded:
    """A stack's log, what the console showed of it second by second, and its decisions."""

    log: Sequence[Record]
    rows: Sequence[NodeRow]
    decisions: Mapping[int, Decision]
    """By second. The history keeps hardly a record: most are read from Kafka again."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Latency-sensitive load comes and goes, and best-effort pods are cut and raised."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch, one_machine(folder) as (node, up):
        assert up.bootstrap
        patch.setattr("slacktide.deploy.console.history.recorder.KEEP_MS_MIN", 3_600_000)
        return asyncio.run(_recorded(folder / "history.db", node, up))


async def _recorded(path: Path, node: VirtualNode, up: Up) -> Recorded:
    counts = {topic.name: 0 for topic in TOPICS}
    async with asyncio.timeout(60):
        while not all(counts.values()):
            await asyncio.sleep(0.2)
            counts = await partition_counts(up.cluster, list(counts))
    follower = Follower(up.cluster, Store(path), SystemClock())
    following = asyncio.create_task(follower.run())
    history = History(path, lambda: follower.recorder, LogRecords(up.cluster))

    async def with_metric() -> list[object]:
        newest_ms = history.bounds().newest_ms
        return [row for row in history.cluster_at(newest_ms or 0) if "metric" in row.places]

    await soon(with_metric, "a NodeMetric is recorded")
    for second in range(RECORDED_S):
        node.service.demand_milli = 6_000 if 6 <= second < 11 else 500
        await asyncio.sleep(1)
    bounds = history.bounds()
    assert bounds.newest_ms is not None
    shown = [row for at in range(RECORDED_S) for row in history.cluster_at(bounds.newest_ms - 1_000 * at)]
    made = {row.at_ms: await _decision(history, row.at_ms + 999) for row in shown}
    await history.log.close()
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    async with Tail(up.cluster, 100) as tail:
        read = await tail.read({(topic, number): WHOLE for topic, count in counts.items() for number in range(count)})
    return Recorded(log=read.records, rows=shown, decisions={at: one for at, one in made.items() if one})


async def _decision(history: History, at_ms: int) -> Decision | None:
    others = await history.log.read(NODE, at_ms, history.decisions.elsewhere(NODE, at_ms))
    return history.decisions.at(NODE, at_ms, others)


def explained(log: Sequence[Record], place: tuple[str, int, int]) -> tuple[NodeExplanation, str]:
    """What explain makes of the log as it was when this record was its topic's newest."""
    [it] = [one for one in log if (one.topic, one.partition, one.offset) == place]
    then = [
        one for one in log if one.timestamp_ms <= it.timestamp_ms and (one.topic != it.topic or one.offset <= it.offset)
    ]
    told = explain_node(node_log(NODE, then), it.timestamp_ms)
    return told, node_text(told)


def test_a_thousand_numbers_are_those_that_explain_has_for_the_same_offset(recorded: Recorded) -> None:
    draw, known = random.Random(7), dict[tuple[str, int, int], tuple[NodeExplanation, str]]()
    shown = [(row, name) for row in recorded.rows for name in _READ if getattr(row, name) is not None]
    assert len({name for _, name in shown}) == len(_READ)
    for row, name in draw.choices(shown, k=NUMBERS):
        step_name, kind = _READ[name]
        place = row.places[kind]
        if place not in known:
            known[place] = explained(recorded.log, place)
        told, text = known[place]
        step = next(one for one in told.steps if (one.place.topic, one.place.partition, one.place.offset) == place)
        assert step.name == step_name
        value = getattr(row, name)
        assert value == _expected(name, told, step.record), (row.at_ms, name, place)
        if name in _SAID:
            assert _SAID[name].format(amount(value, name)) in text
        decision = recorded.decisions[row.at_ms].explanation
        opened = next(
            one for one in decision.steps if (one.place.topic, one.place.partition, one.place.offset) == place
        )
        assert opened.record == step.record
        assert decision.figures == told.figures or kind != "allocatable"


_READ = {
    "used_cpu_milli": ("sample", "sample"),
    "used_mem_bytes": ("sample", "sample"),
    "ls_cpu_milli": ("sample", "sample"),
    "be_cpu_milli": ("sample", "sample"),
    "limit_cpu_milli": ("sample", "sample"),
    "sold_cpu_milli": ("allocatable", "allocatable"),
    "sold_mem_bytes": ("allocatable", "allocatable"),
    "decided_ms": ("outcome", "outcome"),
}
_SAID = {"used_cpu_milli": "node uses {}, ", "sold_cpu_milli": "batch-cpu {}, ", "sold_mem_bytes": "batch-memory {};"}


def _expected(name: str, told: NodeExplanation, record) -> int | None:
    pods = getattr(record, "pod_use", ())
    if name in {"used_cpu_milli", "used_mem_bytes"}:
        return getattr(record.use, name.removeprefix("used_"))
    if name in {"ls_cpu_milli", "be_cpu_milli"}:
        return sum(one.cpu_milli or 0 for one in pods if one.best_effort_group == (name == "be_cpu_milli"))
    if name == "limit_cpu_milli":
        quota_us = record.limits.be_cfs_quota_us
        return UNLIMITED if quota_us is None else 1_000 * quota_us // record.limits.be_cfs_period_us
    if name == "decided_ms":
        return record.age_ms
    field = name.replace("sold_", "batch_")
    return next(one.published for one in told.figures if one.of == field)


def test_a_kept_decision_reads_as_explain_does(recorded: Recorded) -> None:
    decisions = list(recorded.decisions.values())[::3]
    sold = [one for one in decisions if one.explanation.figures]  # the first are of before any was
    assert len(sold) >= 3
    for decision in sold:
        steps = {step.name: step for step in decision.explanation.steps}
        at = steps["allocatable"].place
        told, text = explained(recorded.log, (at.topic, at.partition, at.offset))
        assert decision.explanation.figures == told.figures
        sells = text[text.index("what it offers to batch, mid and free pods:") :]
        assert sells in node_text(decision.explanation)
        for step in decision.explanation.steps:
            of_log, _ = explained(recorded.log, (step.place.topic, step.place.partition, step.place.offset))
            same = next(one for one in of_log.steps if one.place == step.place)
            assert same.record == step.record
        assert "agent.silent" not in {one.name for one in decision.explanation.findings}


def test_the_cluster_shows_cuts_and_a_ceiling(recorded: Recorded) -> None:
    row = recorded.rows[0]
    assert (row.node, row.ceiling_cpu_milli, row.capacity_cpu_milli) == (NODE, 5_200, 8_000)
    assert row.decided_by in {"stream", "guard"}
    known = [row for row in recorded.rows if "metric" in row.places]
    assert len(known) >= RECORDED_S // 2
    assert {row.state for row in known} <= {"ok", "exhausted", "guard"}  # the guard's, where the machine is busy


def test_a_process_killed_again_and_again_stores_each_second_once(tmp_path: Path) -> None:
    with running(EmbeddedBroker) as broker:
        broker.apply_topics(settings=DATED_BY_CLIENTS)
        begin_s = SystemClock().wall_ms() // 1_000 // POINTS * POINTS - 6 * POINTS
        count = asyncio.run(_put(broker.bootstrap, (begin_s * 1_000) - START_MS))
        path, draw = tmp_path / "history.db", random.Random(3)
        store = Store(path)
        zero = {Place(topic.name, number): 0 for topic in FACTS for number in range(topic.partitions)}
        store.add(Minute(start_s=begin_s - POINTS, blocks={}, kept={}, entries=[], rates={}, offsets=zero, firsts={},
                         texts=[]))  # fmt: skip
        store.close()
        command = [sys.executable, "-c", RUN, broker.bootstrap, str(path)]
        for wait_s in [draw.uniform(0.9, 2.0) for _ in range(4)]:
            with subprocess.Popen(command) as process:
                time.sleep(wait_s)
                process.kill()
        with subprocess.Popen(command) as process:
            assert eventually(lambda: (History(path).bounds().newest_ms or 0) >= (begin_s + 299) * 1_000)
            process.kill()
        series = History(path).node_series("node-1", begin_s * 1_000, (begin_s + 300) * 1_000, 300)
        assert list(series.at_ms) == [(begin_s + at) * 1_000 for at in range(300)]
        assert list(series.columns["seq"])[1:] == list(range(1, 300))
        assert sum(series.columns["raises"]) == count
        assert not History(path).bounds().gaps


async def _put(bootstrap: str, later_ms: int) -> int:
    """Five minutes of a node, dated as if they were just over; how many answers raise the limit."""
    chain = Chain()
    for seq in range(1, 300):
        chain.take(seq)
        chain.put(outcome(seq), OUTCOME, at_ms=START_MS + seq * 1_000 + 9)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for one in sorted(chain.records, key=lambda one: one.timestamp_ms):
        if one.topic in {topic.name for topic in TOPICS}:
            number = 0 if "policy" in one.topic else partition_of("node-1", NODE_PARTITIONS)
            await producer.send(one.topic, one.value, one.key, number, one.timestamp_ms + later_ms)
    await producer.stop()
    return sum(b'"answer":"set"' in (one.value or b"") for one in chain.records)


async def test_records_of_a_log_that_was_made_anew_are_not_taken_for_those_of_before(tmp_path: Path) -> None:
    """Nor is anything waited for that is no longer there, or while Kafka is away."""
    with running(EmbeddedBroker) as broker:
        broker.apply_topics()
        number = partition_of("node-1", NODE_PARTITIONS)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        for key in (b"node-1", b"other"):
            await producer.send_and_wait(OUTCOME.name, b"{}", key, number)
        await producer.stop()
        log, place, now_ms = LogRecords(broker.cluster), Place(OUTCOME.name, number), SystemClock().wall_ms()
        [found] = await log.read("node-1", now_ms + 5_000, {place: 0})
        assert (found.key, found.offset) == (b"node-1", 0)
        assert not await log.read("node-1", now_ms + 5_000, {place: 1})
        assert not await log.read("node-1", now_ms - 60_000, {place: 0})
        assert not await log.read("node-1", now_ms + 5_000, {place: 99})
        assert [one.offset for one in await log.read("node-1", now_ms + 5_000, {place: 0})] == [0]
    assert not await log.read("node-1", now_ms + 5_000, {place: 0})
    await log.close()
