"""What the worker says of nodes that are silent."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Pod, Resources, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import policy_of
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, METRIC, SCORE, Topic
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import recalled
from testbed.samples import (
    BATCH,
    GIB,
    SERVICE,
    START_MS,
    SUPPRESS,
    inventory_record,
    keyframe,
    policy_record,
    record_of,
)

NOW_MS = START_MS + 1_000_000
ENCODE = msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=700, batch_mem_bytes=GIB))
DONE = msgspec.structs.replace(ENCODE, uid="done", phase="Succeeded")
SILENT_MS = 9_000

M = TypeVar("M", bound=Message)


def said(outs: list[Out], topic: Topic, kind: type[M]) -> M:
    [found] = [decode(out.value, kind) for out in outs if out.topic == topic.name]
    return found


def told(worker: Worker, seq: int, pods: list[Pod]) -> list[Out]:
    sample = keyframe(seq, pods=pods, pods_revision=revision_of(pods))
    return worker.samples([record_of(sample, partition=3)], NOW_MS)


@pytest.fixture
def worker() -> Worker:
    worker = Worker("w")
    worker.policy(policy_record())
    return worker


def test_figures_go_but_for_what_running_pods_have_asked_for(worker: Worker) -> None:
    told(worker, 1, [SERVICE, ENCODE, DONE])
    outs = worker.silent({"node-1": SILENT_MS})
    allocatable = said(outs, ALLOCATABLE, NodeAllocatable)

    assert (allocatable.batch_cpu_milli, allocatable.batch_mem_bytes) == (700, GIB)
    assert (allocatable.mid_cpu_milli, allocatable.mid_mem_bytes) == (None, None)
    assert allocatable.floored == ["batch_cpu_milli", "batch_mem_bytes"]
    assert (allocatable.reason, allocatable.stale_ms) == ("the node is silent", SILENT_MS)


def test_where_no_such_pod_runs_nothing_is_published(worker: Worker) -> None:
    told(worker, 1, [SERVICE])
    allocatable = said(worker.silent({"node-1": SILENT_MS}), ALLOCATABLE, NodeAllocatable)

    assert (allocatable.batch_cpu_milli, allocatable.batch_mem_bytes, allocatable.floored) == (None, None, [])


def test_free_resources_go_down_to_what_running_pods_requested(worker: Worker) -> None:
    policy = policy_of(
        msgspec.structs.replace(SUPPRESS.colocation, free_class_enable=True), SUPPRESS.resource_threshold
    )
    worker.policy(policy_record(policy))
    free = msgspec.structs.replace(
        ENCODE, priority_class_label="koord-free", requests=Resources(free_cpu_milli=300, free_mem_bytes=GIB)
    )
    before = told(worker, 1, [SERVICE, free])
    outs = worker.silent({"node-1": SILENT_MS})
    allocatable, score = said(outs, ALLOCATABLE, NodeAllocatable), said(outs, SCORE, NodeScore)

    assert said(before, SCORE, NodeScore).free_left.cpu_milli > 0
    assert (allocatable.free_cpu_milli, allocatable.free_mem_bytes) == (300, GIB)
    assert score.free_asked == Use(cpu_milli=300, mem_bytes=GIB)
    assert score.free_left == Use(cpu_milli=0, mem_bytes=0)


def test_metric_and_score_are_as_they_were_said_but_stale_and_nothing_is_left(worker: Worker) -> None:
    before = told(worker, 1, [SERVICE, ENCODE])
    outs = worker.silent({"node-1": SILENT_MS})
    metric, score = said(outs, METRIC, NodeMetric), said(outs, SCORE, NodeScore)

    assert said(before, SCORE, NodeScore).batch_left.cpu_milli > 0
    assert (score.batch_left.cpu_milli, score.batch_left.mem_bytes) == (0, 0)
    assert (metric.stale_ms, score.stale_ms) == (SILENT_MS, SILENT_MS)
    assert msgspec.structs.replace(metric, stale_ms=0) == said(before, METRIC, NodeMetric)
    assert score.use == said(before, SCORE, NodeScore).use


def test_it_goes_where_the_nodes_records_are_and_each_saying_is_an_event_of_its_own(worker: Worker) -> None:
    told(worker, 1, [SERVICE])
    outs = worker.silent({"node-1": 9_000}) + worker.silent({"node-1": 14_000})

    assert {(out.partition, out.key) for out in outs} == {(3, b"node-1")}
    assert len({dict(out.headers)["ce_id"] for out in outs}) == 6


@pytest.mark.parametrize(
    ("silent_ms", "degraded"),
    [
        pytest.param(15 * 60_000, False, id="at degradeTimeMinutes it is stale"),
        pytest.param(15 * 60_000 + 1_000, True, id="beyond it is degraded, too"),
    ],
)
def test_the_references_own_rule_comes_later_and_changes_no_figure(
    worker: Worker, silent_ms: int, *, degraded: bool
) -> None:
    told(worker, 1, [SERVICE, ENCODE])
    allocatable = said(worker.silent({"node-1": silent_ms}), ALLOCATABLE, NodeAllocatable)

    assert (allocatable.degraded, allocatable.batch_cpu_milli) == (degraded, 700)


def test_the_next_sample_brings_the_figures_back(worker: Worker) -> None:
    told(worker, 1, [SERVICE, ENCODE])
    worker.silent({"node-1": SILENT_MS})
    outs = told(worker, 12, [SERVICE, ENCODE])

    assert said(outs, METRIC, NodeMetric).stale_ms == said(outs, SCORE, NodeScore).stale_ms == 0
    assert (said(outs, ALLOCATABLE, NodeAllocatable).batch_cpu_milli or 0) > 700


def test_the_next_sample_brings_them_back_though_it_is_of_a_second_later(worker: Worker) -> None:
    """It was on its way for long."""
    told(worker, 1, [SERVICE, ENCODE])
    worker.silent({"node-1": SILENT_MS})

    assert said(told(worker, 2, [SERVICE, ENCODE]), METRIC, NodeMetric).stale_ms == 0


def test_nothing_is_said_of_who_is_unknown_removed_or_anothers(worker: Worker) -> None:
    told(worker, 1, [SERVICE])

    assert worker.silent({"node-2": SILENT_MS}) == []
    worker.inventory(inventory_record(None, partition=3))
    assert worker.silent({"node-1": SILENT_MS}) == []
    worker = Worker("v")
    told(worker, 1, [SERVICE])
    worker.forget(3)
    assert worker.silent({"node-1": SILENT_MS}) == []


def logged(outs: list[Out]) -> list[Record]:
    """What was written, as it is read back."""
    return [
        Record(topic=out.topic, partition=3, offset=0, timestamp_ms=NOW_MS, key=out.key, value=out.value)
        for out in outs
    ]


def test_a_new_owner_says_what_the_last_one_said_from_the_log(worker: Worker) -> None:
    """It never heard of the node itself; the floor stands in the record."""
    first = told(worker, 1, [SERVICE, ENCODE])
    records = logged(first + worker.silent({"node-1": SILENT_MS}))
    owner = Worker("next")

    assert owner.recall(3, recalled(records, ["node-1", "node-2"])) == {"node-1": SILENT_MS}
    allocatable = said(owner.silent({"node-1": 20_000}), ALLOCATABLE, NodeAllocatable)
    assert (allocatable.batch_cpu_milli, allocatable.stale_ms) == (700, 20_000)


def test_what_the_owner_has_said_itself_is_newer(worker: Worker) -> None:
    old = recalled(logged(told(Worker("last"), 1, [SERVICE])), ["node-1"])
    told(worker, 5, [SERVICE, ENCODE])
    worker.recall(3, old)

    assert said(worker.silent({"node-1": SILENT_MS}), METRIC, NodeMetric).seq == 5


def test_a_node_that_was_removed_or_half_said_is_not_recalled(worker: Worker) -> None:
    records = logged(told(worker, 1, [SERVICE]))

    assert recalled([*records, *logged(worker.inventory(inventory_record(None, partition=3)))], ["node-1"]) == []
    assert recalled(records[:2], ["node-1"]) == []
    worker.recall(3, recalled(records, ["node-1"]))
    assert worker.silent({"node-1": SILENT_MS}) == []
