"""Which dead-lettered records may be written again."""

import base64

import pytest

from slacktide.deploy.cli.dead_letter import HEADER, Found, StoredDeadLetter, dead_letter_of, starts, steps
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, POLICY, SAMPLE
from slacktide.streams.kafka import TopicState
from slacktide.streams.records import Record, dead_letter
from testbed.samples import body_of, sample

NOW_MS = 1_763_712_000_000
STATE = TopicState(
    name=SAMPLE.name, partitions=12, replication=1, config={}, begin=dict.fromkeys(range(12), 1000), end={3: 1100}
)
VALUE = body_of(sample(7))
NO_OFFSET = f"{SAMPLE.name}/3:{'9' * 5000}".encode()


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


def again(mark: bytes = f"{SAMPLE.name}/3:1042".encode(), **changes: object) -> Record:
    """The record with the header that says it was written again."""
    return record(1050, headers=(("ce_id", b"b/7"), (HEADER, mark)), **changes)


THERE = (record(),)
OTHER = body_of(sample(8))
BAD = record(value=b"{oops")


@pytest.mark.parametrize(
    ("letters", "there", "fates"),
    [
        pytest.param([letter()], (record(), again()), ["already there"], id="one that was written again"),
        pytest.param(
            [letter(), letter(reader="agent/node-1")], THERE, ["put back", "already there"], id="of two readers"
        ),
        pytest.param([letter()], (record(), again(value=b"{}")), ["put back"], id="its mark on another content"),
        pytest.param([letter()], (record(), again(key=b"node-2")), ["put back"], id="its mark on another key"),
        pytest.param([letter()], (record(), again(b"x" * 5000)), ["put back"], id="a mark of no place"),
        pytest.param([letter()], (record(), again(NO_OFFSET)), ["put back"], id="a mark of no offset"),
        pytest.param([letter()], (), ["expired"], id="a record that has expired"),
        pytest.param([letter(offset=1100)], THERE, ["no such place"], id="an offset that is not there yet"),
        pytest.param([letter(partition=12)], THERE, ["no such place"], id="a partition that is not there"),
        pytest.param([letter()], (record(value=OTHER),), ["changed"], id="another value in a re-created topic"),
        pytest.param([letter()], (record(key=b"node-2"),), ["changed"], id="another key in a re-created topic"),
        pytest.param([letter(value_base64=None)], THERE, ["changed"], id="a letter without a record"),
        pytest.param([letter(value_base64="%")], THERE, ["changed"], id="a value that is no base64"),
        pytest.param([letter(BAD)], (BAD,), ["unreadable"], id="what would be refused again"),
    ],
)
def test_a_record_is_written_again_once_and_only_where_it_is_as_described(
    letters: list[StoredDeadLetter], there: tuple[Record, ...], fates: list[str]
) -> None:
    assert [step.fate for step in decided(*letters, there=there)] == fates


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


def test_only_what_lies_behind_the_originals_is_read() -> None:
    state = TopicState(
        name=SAMPLE.name, partitions=2, replication=1, config={}, begin={0: 0, 3: 0}, end={0: 9, 3: 1100}
    )

    assert starts([letter(), letter(offset=1040), letter(topic=POLICY.name)], state) == {0: 9, 3: 1040}


def test_what_is_no_dead_letter_is_none() -> None:
    assert dead_letter_of(record(value=b"{oops")) is None
