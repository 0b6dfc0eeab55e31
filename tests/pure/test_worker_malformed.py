"""A record that nobody can use stops nothing: one dead letter, and the next record is read."""

from base64 import b64decode
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.heartbeat import RESERVED
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, SAMPLE
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.malformed import bad_record, malformed
from testbed.messages import any_message
from testbed.samples import START_MS, inventory_record, keyframe, policy_record, raw_record, record_of

BAD = 10_000


def worker() -> Worker:
    made = Worker("w")
    made.policy(policy_record())
    return made


def letters(outs: list[Out]) -> list[DeadLetter]:
    return [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name]


@pytest.mark.exhaustive
def test_each_of_10000_malformed_records_is_one_dead_letter_and_those_between_are_answered() -> None:
    """What names its node is answered skipped beside."""
    offsets = count()
    records: list[Record] = []
    for bad in malformed(BAD, seed=1):
        records.append(bad_record(bad, next(offsets)))
        if bad.kind in {"noise", "deep", "absurd amount"}:
            seq = next(offsets)
            records.append(record_of(keyframe(seq, node="good"), offset=seq))
    outs = worker().samples(records, START_MS)

    good = [record.offset for record in records if record.key == b"good"]
    bad_offsets = [record.offset for record in records if record.key != b"good"]
    assert [letter.offset for letter in letters(outs)] == bad_offsets
    commands = [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]
    assert [each.seq for each in commands if each.node == "good" and each.answer != "skipped"] == good
    named = sum(bad.named for bad in malformed(BAD, seed=1))
    assert [each.answer for each in commands if each.node != "good"] == ["skipped"] * named


def test_a_dead_letter_says_why_and_where_and_holds_the_record() -> None:
    record = Record(
        topic=SAMPLE.name,
        partition=4,
        offset=99,
        timestamp_ms=START_MS,
        key=b"node-1",
        value=b'{"of":{"node":3},"now":[]}',
        headers=[("ce_id", b"7"), ("odd", b"\xff")],
    )
    [letter] = letters(worker().samples([record], START_MS))

    assert (letter.topic, letter.partition, letter.offset, letter.key) == (record.topic, 4, 99, "node-1")
    assert "$.of.node" in letter.reason
    assert (letter.reader, letter.refused_ms) == ("stream/w", START_MS)
    assert letter.headers == {"ce_id": "7", "odd": "\\xff"}
    assert letter.value_base64 is not None
    assert b64decode(letter.value_base64) == record.value
    assert letter.value_bytes == 26


def test_a_dead_letter_is_never_itself_too_large() -> None:
    """Of a huge record it holds what fits."""
    record = raw_record(b"x" * 3_000_000, key=b"k" * 900_000)
    [out] = worker().samples([record], START_MS)
    [letter] = letters([out])

    assert letter.value_base64 is not None
    assert len(b64decode(letter.value_base64)) == VALUE_BYTES_MAX
    assert letter.value_bytes == 3_000_000
    assert len(out.value or b"") + len(out.key or b"") < 1_000_000


def test_a_null_sample_is_a_deletion_and_no_dead_letter() -> None:
    assert worker().samples([raw_record(None, key=b"node-1"), raw_record(None, key=None)], START_MS) == []


@given(st.binary(max_size=300), st.none() | st.binary(max_size=20))
def test_no_bytes_stop_the_worker(value: bytes, key: bytes | None) -> None:
    """Wherever they stand."""
    reader = worker()
    reader.learn([raw_record(value, key=key)])
    reader.policy(policy_record(value))
    reader.inventory(inventory_record(value))

    assert len(letters(reader.samples([raw_record(value, key=key)], START_MS))) == 1


def of_a_node(said: NodeSample | NodeInventory) -> bool:
    """Whether its name may be a node's."""
    return not said.node.startswith(RESERVED)


@given(any_message(NodeSample).filter(of_a_node))
def test_any_sample_that_can_be_read_is_answered_once(said: NodeSample) -> None:
    """Also twice, also after it was learnt; odd figures make a dead letter beside the answer, never more than one."""
    reader = worker()
    for _ in range(2):
        outs = reader.samples([record_of(said)], START_MS)

        assert sum(out.topic == COMMAND.name for out in outs) == 1
        assert len(letters(outs)) <= 1
        reader.learn([record_of(said)])


@given(any_message(Policy), any_message(NodeSample).filter(of_a_node))
def test_any_policy_that_can_be_read_stops_nothing(policy: Policy, said: NodeSample) -> None:
    reader = Worker("w")
    reader.policy(policy_record(policy))
    agrees = msgspec.structs.replace(said, policy_version=reader.in_force.version)

    assert sum(out.topic == COMMAND.name for out in reader.samples([record_of(agrees)], START_MS)) == 1


@given(any_message(NodeInventory).filter(of_a_node))
def test_any_inventory_that_can_be_read_stops_nothing(said: NodeInventory) -> None:
    assert worker().inventory(inventory_record(said, node=said.node)) == []


@pytest.mark.parametrize("key", [b"other", b"\xff"])
def test_a_policy_under_another_key_is_none(key: bytes) -> None:
    reader = Worker("w")

    assert len(letters(reader.policy(policy_record(key=key)))) == 1
    assert reader.in_force == DEFAULT
