"""Whoever reads samples after the fact reads both forms: the same trace comes to the same."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from replay.traces import in_order, replayed

from slacktide.deploy.cli.records import sample_lines
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.topics import COMMAND, SAMPLE, SAMPLE_COLUMNS, SHADOW_COMMAND
from slacktide.streams.comparison import Comparison, report
from slacktide.streams.explain.node_log import node_log
from slacktide.streams.records import Record
from slacktide.streams.replay.lines import records_of
from slacktide.streams.rows import Rows
from testbed.chains import Chain
from testbed.columns import in_columns
from testbed.samples import PODS, START_MS, keyframe, sample

GOLDEN = Path(__file__).parents[1] / "replay" / "golden.jsonl.gz"


@pytest.fixture(scope="module")
def golden() -> list[Record]:
    with gzip.open(GOLDEN) as lines:
        next(lines)
        return in_order(records_of(lines, str(GOLDEN)))


def test_the_golden_trace_in_columns_replays_equal(golden: list[Record]) -> None:
    rows, columns = replayed(golden), replayed(in_columns(golden))

    assert columns.equal
    assert columns == rows


def test_a_trace_whose_agents_change_their_form_replays_equal(golden: list[Record]) -> None:
    """Each node's samples are in rows until a moment, then in columns."""
    moment_ms = golden[len(golden) // 2].timestamp_ms
    columns = in_columns(golden)
    moved = {
        (record.partition, record.offset)
        for record in golden
        if record.topic == SAMPLE.name and record.timestamp_ms >= moment_ms
    }
    mixed = []
    for before, after in zip(golden, columns, strict=True):
        place = (before.partition, before.offset)
        if before.topic == COMMAND.name:
            origin = msgspec.json.decode(before.value)["sample"]
            place = (origin["partition"], origin["offset"])
        mixed.append(after if place in moved else before)

    assert {record.topic for record in mixed} >= {SAMPLE.name, SAMPLE_COLUMNS.name}
    assert replayed(mixed).commands == replayed(golden).commands
    assert replayed(mixed).equal


def test_a_node_is_explained_the_same() -> None:
    chain = Chain()
    chain.run(1, 25)
    rows, columns = node_log("node-1", chain.records), node_log("node-1", in_columns(chain.records))

    assert [one.body for one in columns.samples] == [one.body for one in rows.samples]
    assert columns.pods == rows.pods
    assert columns.keyframe.place.topic == SAMPLE_COLUMNS.name


def test_limits_of_samples_in_columns_are_compared() -> None:
    chain = Chain()
    chain.run(1, 12)
    shadow = [
        msgspec.structs.replace(one, topic=SHADOW_COMMAND.name, value=encode(keeps(decode(one.value, NodeCommand))))
        for one in chain.records
        if one.topic == COMMAND.name
    ]
    counted = []
    for records in (chain.records, in_columns(chain.records)):
        compared = Comparison()
        for record in (*records, *shadow):
            report(compared, record)
        counted.append(compared.all())

    assert counted[0] == counted[1]
    assert counted[0].limits


def keeps(command: NodeCommand) -> NodeCommand:
    return msgspec.structs.replace(command, answer="keep", hold=[])


def record(value: bytes, offset: int) -> Record:
    return Record(
        topic=SAMPLE_COLUMNS.name, partition=0, offset=offset, timestamp_ms=START_MS, key=b"node-1", value=value
    )


def columns(*samples) -> list[Record]:
    made = [
        Record(topic=SAMPLE.name, partition=0, offset=one.seq, timestamp_ms=START_MS, key=b"node-1", value=encode(one))
        for one in samples
    ]
    return in_columns(made)


def test_a_person_reads_a_line_for_each_pod() -> None:
    rows = Rows()
    first, second = columns(keyframe(1), sample(2))
    sample_lines(first, rows)

    node, *pods = sample_lines(second, rows).splitlines()

    assert node.startswith("2027-01-15T08:00:00.000Z 0:2 node-1 {")
    assert '"use":{"cpu_milli":1500,"mem_bytes":4294967296' in node
    assert pods == [
        '  shop/front {"cpu_milli":1000,"mem_bytes":1073741824}',
        '  jobs/batch {"cpu_milli":500,"mem_bytes":2147483648,"best_effort_group":true}',
    ]
    assert len(pods) == len(PODS)


def test_without_the_list_it_is_shown_as_it_is() -> None:
    _, second = columns(keyframe(1), sample(2))

    assert '"now":[2,' in sample_lines(second, Rows())
