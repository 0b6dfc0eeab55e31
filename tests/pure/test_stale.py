"""What the worker says of nodes that are silent."""

from typing import TypeVar

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Pod, Resources, revision_of
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, METRIC, SCORE, Topic
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import recalled
from testbed.samples import BATCH, GIB, SERVICE, START_MS, inventory_record, keyframe, policy_record, record_of

NOW_MS = START_MS + 1_000_000
ENCODE = msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=700, batch_mem_bytes=GIB))
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
