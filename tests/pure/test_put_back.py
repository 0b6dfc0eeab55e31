"""Which dead-lettered records may be written again."""

from __future__ import annotations

import base64

import pytest

from slacktide.deploy.cli.put_back import HEADER, Found, StoredDeadLetter, dead_letter_of, starts, steps
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, POLICY, SAMPLE
from slacktide.streams.kafka import TopicState
from slacktide.streams.records import Record, dead_letter
from testbed.samples import sample

NOW_MS = 1_763_712_000_000
STATE = TopicState(
    name=SAMPLE.name, partitions=12, replication=1, config={}, begin=dict.fromkeys(range(12), 1000), end={3: 1100}
)
VALUE = encode(sample(7))


def record(offset: int = 1042, *, topic: str = SAMPLE.name, **changes: object) -> Record:
    given = {
        "topic": topic,
        "partition": 3,
        "offset": offset,
        "timestamp_ms": NOW_MS,
        "key": b"node-1",
        "value": VALUE,
        "headers": (("ce_id", b"b/7"),),
    }
    return Record(**(given | changes))


def letter(about: Record | None = None, *, reader: str = "stream/blue", **body: object) -> StoredDeadLetter:
    """A dead letter as it is read from its topic, honest but for the fields of its body that are given."""
    out = dead_letter(about or record(), reader=reader, reason="not a NodeSample", now_ms=NOW_MS)
    given = {name: getattr(decode(out.value, DeadLetter), name) for name in DeadLetter.__struct_fields__} | body
    place = {"topic": DEAD_LETTER.name, "partition": 0, "key": out.key, "value": encode(DeadLetter(**given))}
    found = dead_letter_of(record(0, **place))
    assert found is not None
    return found


def decided(*letters: StoredDeadLetter, there: tuple[Record, ...] = (record(),)) -> list:
    found, wanted = Found(), frozenset(one.origin for one in letters)
    for one in there:
        found.add(one, wanted)
    return steps(letters, found, {SAMPLE.name: STATE})


def fates(*letters: StoredDeadLetter, there: tuple[Record, ...] = (record(),)) -> list[str]:
    return [step.fate for step in decided(*letters, there=there)]


def test_the_original_is_written_again_and_names_its_place() -> None:
    [step] = decided(letter(headers={"ce_id": "forged"}))
    out = step.out
    assert out is not None

    assert (out.topic, out.partition, out.key, out.value) == (SAMPLE.name, 3, b"node-1", VALUE)
    assert out.headers == (("ce_id", b"b/7"), (HEADER, f"{SAMPLE.name}/3:1042".encode()))


def test_nothing_of_a_letter_is_ever_written() -> None:
    """A letter with another content than the record at its place is not about that record."""
    forged = letter(value_base64=base64.b64encode(b'{"node":"node-2"}').decode(), value_bytes=17)

    assert [(step.fate, step.out) for step in decided(forged)] == [("changed", None)]


@pytest.mark.parametrize("topic", [POLICY.name, CREDIT.name, DEAD_LETTER.name, "another.v1"])
def test_a_letter_cannot_name_a_topic_whose_old_records_would_act(topic: str) -> None:
    states = {
        SAMPLE.name: STATE,
        topic: TopicState(**{f: getattr(STATE, f) for f in STATE.__slots__} | {"name": topic}),
    }
    there = record(topic=topic)
    found = Found(originals={letter(there).origin: there})

    assert [step.fate for step in steps([letter(there)], found, states)] == ["no such place"]


def test_it_is_written_again_once() -> None:
    [first] = decided(letter())
    assert first.out is not None
    back = record(1050, headers=first.out.headers)

    assert fates(letter(), there=(record(), back)) == ["already there"]


def test_what_several_readers_refused_is_written_again_once() -> None:
    assert fates(letter(), letter(reader="agent/node-1")) == ["put back", "already there"]


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({"value": b"{}"}, id="another content"),
        pytest.param({"key": b"node-2"}, id="another key"),
        pytest.param({"headers": ((HEADER, b"x" * 5000),)}, id="no place"),
        pytest.param({"headers": ((HEADER, f"{SAMPLE.name}/3:{'9' * 5000}".encode()),)}, id="no offset"),
    ],
)
def test_a_header_alone_does_not_prove_that_a_record_was_written_again(mark: dict) -> None:
    forged = {"headers": ((HEADER, f"{SAMPLE.name}/3:1042".encode()),)} | mark

    assert fates(letter(), there=(record(), record(1050, **forged))) == ["put back"]


@pytest.mark.parametrize(
    ("given", "there", "fate"),
    [
        pytest.param({}, (), "expired", id="a record that has expired"),
        pytest.param({"offset": 1100}, (record(),), "no such place", id="an offset that is not there yet"),
        pytest.param({"partition": 12}, (record(),), "no such place", id="a partition that is not there"),
        pytest.param({}, (record(value=encode(sample(8))),), "changed", id="another value in a re-created topic"),
        pytest.param({}, (record(key=b"node-2"),), "changed", id="another key in a re-created topic"),
        pytest.param({"value_base64": None}, (record(),), "changed", id="a letter without a record"),
        pytest.param({"value_base64": "%"}, (record(),), "changed", id="a value that is no base64"),
    ],
)
def test_what_is_not_there_as_described_is_left(given: dict, there: tuple[Record, ...], fate: str) -> None:
    assert fates(letter(**given), there=there) == [fate]


@pytest.mark.parametrize(
    "about",
    [
        pytest.param(record(key=None), id="a record without a key"),
        pytest.param(record(key=b"\xff"), id="a key that is no text"),
        pytest.param(record(key=b"k" * 5000), id="a key too long for a letter"),
        pytest.param(record(value=VALUE[:-1] + b" " * VALUE_BYTES_MAX + b"}"), id="a value too long for a letter"),
    ],
)
def test_what_a_letter_could_not_hold_is_written_again_whole(about: Record) -> None:
    [step] = decided(letter(about), there=(about,))

    assert step.out is not None
    assert (step.out.key, step.out.value) == (about.key, about.value)


def test_what_would_be_refused_again_is_left() -> None:
    bad = record(value=b"{oops")

    assert fates(letter(bad), there=(bad,)) == ["unreadable"]


def test_only_what_lies_behind_the_originals_is_read() -> None:
    state = TopicState(
        name=SAMPLE.name, partitions=2, replication=1, config={}, begin={0: 0, 3: 0}, end={0: 9, 3: 1100}
    )

    assert starts([letter(), letter(offset=1040), letter(topic=POLICY.name)], state) == {0: 9, 3: 1040}


def test_what_is_no_dead_letter_is_none() -> None:
    assert dead_letter_of(record(value=b"{oops")) is None
