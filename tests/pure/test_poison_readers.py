"""Extreme values in any field of the stream's figures cost their node alone, in the bridge and beside a scheduler."""

from collections.abc import Iterator

import pytest

from slacktide.agents.cluster.bridge.node_status import shown
from slacktide.agents.cluster.bridge.writing import FigureReader as BridgeReader
from slacktide.agents.cluster.bridge.writing import Write, Writing
from slacktide.agents.cluster.scheduler.topic_reader import TopicReader as SchedulerReader
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.message import Message
from slacktide.schemas.topics import ALLOCATABLE, BY_NAME, INVENTORY, METRIC, SCORE
from slacktide.streams.decisions.load.pod_placement import Choice, PlacementArgs
from slacktide.streams.records import Record
from testbed.extremes import EXTREMES, full, paths, with_value
from testbed.kube_scheduler import WALL_S, Still, figures, manifest
from testbed.samples import START_MS
from testbed.scheduler_pods import parsed

from .test_bridge_writing import allocatable, metric

pytestmark = pytest.mark.exhaustive

BAD, GOOD = "bad", "good"
WHOLE = Resources(cpu_milli=8_000, mem_bytes=2**34)


def record(topic: str, value: bytes, node: str) -> Record:
    return Record(topic=topic, partition=0, offset=1, timestamp_ms=START_MS, key=node.encode(), value=value)


def poisons(topic: str) -> Iterator[Record]:
    """One extreme value in one field of the bad node's record, for all fields and values."""
    kind: type[Message] = BY_NAME[topic].message
    body = full(kind) | {"node": BAD, "boot_id": "000000000001-00000000"}
    for path in paths(body):
        for value in EXTREMES:
            yield record(topic, with_value(body, path, value), BAD)


def written(poison: Record | None) -> list[Write]:
    """What a bridge writes of the good node."""
    writing, letters = Writing(), []
    reader = BridgeReader(Cluster("localhost:1"), writing, lambda bad, why: letters.append((bad, why)), Still())
    for name in (BAD, GOOD):
        writing.node(name, NodeFacts(name=name, capacity=WHOLE, allocatable=WHOLE), shown({}, {}), 0)
    for one in (metric(node=GOOD), allocatable(node=GOOD)):
        topic = METRIC.name if "samples" in one.__struct_fields__ else ALLOCATABLE.name
        reader._receive(record(topic, encode(one), GOOD), 1)
    if poison is not None:
        reader._receive(poison, 1)
    return [write for write in writing.due(2) if write.node == GOOD]


@pytest.mark.parametrize("topic", [METRIC.name, ALLOCATABLE.name])
def test_no_figures_of_a_node_change_what_a_bridge_writes_of_another(topic: str) -> None:
    alone = written(None)
    assert {write.kind for write in alone} == {"metric", "status"}
    for poison in poisons(topic):
        assert written(poison) == alone


def chosen(poison: Record | None) -> Choice:
    """Which of both nodes a scheduler is told to take."""
    view, letters = View(PlacementArgs()), []
    reader = SchedulerReader(
        Cluster("localhost:1"), view, PlacementArgs(), lambda bad, why: letters.append((bad, why)), Still()
    )
    for one in figures(GOOD):
        view.receive(one, received_s=Still.now_s, logged_s=WALL_S)
    if poison is not None:
        reader._receive(poison, received_s=Still.now_s, logged_s=WALL_S)
    return view.choose(parsed(manifest("asking")).asked, (BAD, GOOD), now_s=Still.now_s)


@pytest.mark.parametrize("topic", [SCORE.name, METRIC.name, ALLOCATABLE.name, INVENTORY.name])
def test_no_figures_of_a_node_keep_a_pod_from_another(topic: str) -> None:
    [alone] = [one for one in chosen(None).ranked if one.name == GOOD]
    for poison in poisons(topic):
        [beside] = [one for one in chosen(poison).ranked if one.name == GOOD]
        assert beside.willing == alone.willing
