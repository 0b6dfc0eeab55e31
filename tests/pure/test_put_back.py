"""What becomes of a dead letter that is to be put back."""

from __future__ import annotations

import base64

import pytest

from slacktide.agents.kafka import Record
from slacktide.deploy.cli.put_back import HEADER, Letter, letter_of, steps
from slacktide.schemas.codec import encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.topics import DEAD_LETTER, INVENTORY, OUTCOME, POLICY, SAMPLE

NOW_MS = 1_763_712_000_000
HOUR_MS = 3_600_000
PARTITIONS = {SAMPLE.name: 12, INVENTORY.name: 12, POLICY.name: 1}


def letter(offset: int = 0, raw_key: bytes = b"node-1", **body: object) -> Letter:
    """A dead letter as it is read from its topic."""
    value = b"{oops"
    given = {
        "topic": SAMPLE.name,
        "partition": 3,
        "offset": 1042,
        "reason": "not a NodeSample",
        "reader": "stream/blue",
        "refused_ms": NOW_MS - HOUR_MS,
        "key": "node-1",
        "headers": {"ce_id": "b/7"},
        "value_base64": base64.b64encode(value).decode(),
        "value_bytes": len(value),
    } | body
    found = letter_of(record(DEAD_LETTER.name, 0, offset, raw_key, encode(DeadLetter(**given))))
    assert found is not None
    return found


def record(
    topic: str, partition: int, offset: int, key: bytes, value: bytes = b"{}", headers=(), at_ms=NOW_MS
) -> Record:
    return Record(
        topic=topic, partition=partition, offset=offset, timestamp_ms=at_ms, key=key, value=value, headers=headers
    )


def fates(*letters: Letter, there: tuple[Record, ...] = ()) -> list[str]:
    by_topic = {name: [one for one in there if one.topic == name] for name in PARTITIONS}
    return [step.fate for step in steps(letters, by_topic, PARTITIONS, NOW_MS)]


def test_a_record_is_put_back_as_it_was_and_says_what_it_is() -> None:
    [step] = steps([letter()], {}, PARTITIONS, NOW_MS)
    out = step.out
    assert out is not None

    assert (out.topic, out.partition, out.key, out.value) == (SAMPLE.name, 3, b"node-1", b"{oops")
    mark = f"0:0@{NOW_MS} {SAMPLE.name}/3:1042".encode()
    assert out.headers == (("ce_id", b"b/7"), (HEADER, mark))


def test_it_is_put_back_once() -> None:
    first = steps([letter()], {}, PARTITIONS, NOW_MS)[0].out
    assert first is not None
    back = record(SAMPLE.name, 3, 1050, b"node-1", b"{oops", first.headers)

    assert fates(letter(), there=(back,)) == ["already there"]


def test_what_several_readers_refused_is_put_back_once() -> None:
    """A policy is refused by the worker and by every agent; also when they are put back one after the other."""
    assert fates(letter(0), letter(1, reader="agent/node-1")) == ["put back", "already there"]
    first = steps([letter(0)], {}, PARTITIONS, NOW_MS)[0].out
    assert first is not None
    back = record(SAMPLE.name, 3, 1050, b"node-1", b"{oops", first.headers)
    assert fates(letter(1, reader="agent/node-1"), there=(back,)) == ["already there"]


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        pytest.param({"value_bytes": 300_000}, "not whole", id="a value that was cut"),
        pytest.param({"value_base64": None}, "not whole", id="a record that the log itself had refused"),
        pytest.param({"value_base64": "%"}, "not whole", id="a value that is no base64"),
        pytest.param({"raw_key": b""}, "not whole", id="a key that was too long for the letter"),
        pytest.param({"raw_key": b"k" * 1024, "key": "k" * 1024}, "not whole", id="a key that may have been cut"),
        pytest.param({"refused_ms": NOW_MS - 49 * HOUR_MS}, "outlived", id="a sample that nobody would keep"),
        pytest.param({"partition": 12}, "from elsewhere", id="a partition that is not there"),
        pytest.param({"topic": "another.v1"}, "from elsewhere", id="a topic that is not ours"),
        pytest.param({"topic": OUTCOME.name}, "from elsewhere", id="a topic that is not there"),
        pytest.param({"topic": DEAD_LETTER.name}, "from elsewhere", id="a dead letter of a dead letter"),
        pytest.param({"key": None, "raw_key": b""}, "put back", id="a record without a key"),
        pytest.param({"raw_key": b"\xff", "key": "\\xff"}, "put back", id="a key that is no text"),
    ],
)
def test_what_cannot_be_put_back_as_it_was_is_left(given: dict, fate: str) -> None:
    assert fates(letter(**given)) == [fate]


@pytest.mark.parametrize(
    ("behind", "fate"),
    [
        pytest.param((), "put back", id="nothing was said since"),
        pytest.param((record(INVENTORY.name, 3, 1043, b"node-1"),), "overtaken", id="told anew"),
        pytest.param((record(INVENTORY.name, 3, 1043, b"node-2"),), "put back", id="of another node"),
        pytest.param((record(INVENTORY.name, 4, 1043, b"node-1"),), "put back", id="in another partition"),
        pytest.param((record(INVENTORY.name, 3, 5, b"node-1"),), "overtaken", id="in a topic made anew"),
        pytest.param(
            (record(INVENTORY.name, 3, 5, b"node-1", at_ms=NOW_MS - 2 * HOUR_MS),),
            "put back",
            id="what it had replaced",
        ),
    ],
)
def test_an_old_state_never_goes_over_a_newer_one(behind: tuple[Record, ...], fate: str) -> None:
    assert fates(letter(topic=INVENTORY.name), there=behind) == [fate]


def test_what_was_put_back_and_told_anew_since_is_not_put_back_again() -> None:
    first = steps([letter(topic=INVENTORY.name)], {}, PARTITIONS, NOW_MS)[0].out
    assert first is not None
    back = record(INVENTORY.name, 3, 1050, b"node-1", b"{oops", first.headers)

    assert fates(letter(topic=INVENTORY.name), there=(back,)) == ["already there"]
    assert fates(letter(topic=INVENTORY.name), there=(record(INVENTORY.name, 3, 1051, b"node-1"),)) == ["overtaken"]


def test_what_is_no_dead_letter_is_none() -> None:
    assert letter_of(record(DEAD_LETTER.name, 0, 0, b"node-1", b"{oops")) is None
