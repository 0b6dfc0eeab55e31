"""Words for people: topic names, records as lines, tables, time spans."""

from __future__ import annotations

import base64
import logging

import click
import pytest
from msgspec.structs import replace

from slacktide.deploy.cli.records import UnknownTopicError, dead_letter_row, dead_letter_text, line, topic_named
from slacktide.deploy.runtime.logs import _Formatter, _human
from slacktide.deploy.runtime.text import Duration, instant, show, table
from slacktide.schemas.codec import encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, POLICY, SAMPLE, SAMPLE_COLUMNS, Topic
from slacktide.streams.records import Record


def record(value: bytes | None, key: bytes | None = b"policy", **fields) -> Record:
    return Record(
        **{
            "topic": POLICY.name,
            "partition": 0,
            "offset": 7,
            "timestamp_ms": 1763712000250,
            "key": key,
            "value": value,
            "headers": (("ce_id", b"a1"), ("ce_source", b"publisher")),
        }
        | fields
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("slacktide.node.sample.v2", SAMPLE_COLUMNS),
        ("node.sample.v2", SAMPLE_COLUMNS),
        ("node.sample", SAMPLE_COLUMNS),
        ("sample", SAMPLE_COLUMNS),
        ("slacktide.node.sample.v1", SAMPLE),
        ("node.sample.v1", SAMPLE),
        ("dead-letter", DEAD_LETTER),
    ],
)
def test_a_topic_goes_by_its_full_and_its_short_names(text: str, meant: Topic) -> None:
    assert topic_named(text) is meant


@pytest.mark.parametrize(
    ("text", "suggested"),
    [("node.commnd", "node.command"), ("slacktide.node.command.v2", "node.command"), ("zzz", "node.sample.v1")],
)
def test_an_unknown_topic_is_answered_with_names_that_are_near(text: str, suggested: str) -> None:
    with pytest.raises(UnknownTopicError, match=f"no topic {text}; .*{suggested}"):
        topic_named(text)


def test_a_record_is_one_line_with_time_place_key_headers_and_body() -> None:
    """The body is the record's own JSON, without its line breaks."""
    written = line(record(b'{\n  "version": "v1",\n  "unknown": [1, 2]\n}'), POLICY)

    assert written == (
        '2025-11-21T08:00:00.250Z 0:7 policy [ce_id=a1 ce_source=publisher] {"version":"v1","unknown":[1,2]}'
    )


def test_a_deletion_and_a_missing_key_show_as_such() -> None:
    assert line(record(None, key=None), POLICY).endswith("0:7 - [ce_id=a1 ce_source=publisher] null (deleted)")


def test_a_record_that_does_not_decode_is_shown_with_why() -> None:
    written = line(record(b'{"seq": 1}'), COMMAND)

    assert written.endswith('(not a NodeCommand: Object missing required field `id`) {"seq": 1}')


@pytest.mark.parametrize("evil", [b"a\nb", b"a\x1b[2Jb", b"\xff\xfe", "a\u2028b".encode(), b"a\rb"])
def test_no_record_can_break_a_line_or_steer_the_terminal(evil: bytes) -> None:
    """Whatever lies in key, header or body."""
    text = evil.decode(errors="backslashreplace")
    written = line(record(evil, key=evil, headers=((text, evil),)), POLICY)
    dead_letter = replace(LETTER, topic=text, key=text, reader=text, reason=text)

    assert written.isprintable()
    assert all(cell.isprintable() for cell in dead_letter_row(record(encode(dead_letter))) if isinstance(cell, str))
    assert len(written.splitlines()) == 1


LETTER = DeadLetter(
    topic=SAMPLE.name,
    partition=3,
    offset=1042,
    reason="not a NodeSample: JSON is malformed",
    reader="stream/blue",
    refused_ms=1763712000000,
    key="node-1",
    headers={"ce_source": "agent/node-1"},
    value_base64=base64.b64encode(b"{oops").decode(),
    value_bytes=5,
)


def test_a_dead_letter_is_a_row_with_its_origin_and_reason() -> None:
    row = dead_letter_row(record(encode(LETTER)))

    assert row == (
        "2025-11-21T08:00:00.250Z",
        7,
        "node.sample.v1 3:1042",
        "node-1",
        "stream/blue",
        "not a NodeSample: JSON is malformed",
    )


def test_a_dead_letter_that_is_none_is_still_listed() -> None:
    assert "not a DeadLetter" in dead_letter_row(record(b"?"))[-1]


def test_a_dead_letter_is_shown_whole() -> None:
    assert dead_letter_text(record(encode(LETTER))).splitlines() == [
        "offset   7",
        "from     slacktide.node.sample.v1 3:1042",
        "refused  2025-11-21T08:00:00.000Z by stream/blue",
        "reason   not a NodeSample: JSON is malformed",
        "key      node-1",
        "header   ce_source=agent/node-1",
        "value    5 bytes",
        "{oops",
    ]


def test_a_dead_letter_of_a_null_or_a_cut_value_says_so() -> None:
    whole = {"topic": "t", "partition": 0, "offset": 0, "reason": "r", "reader": "s", "refused_ms": 0}
    cut = DeadLetter(**whole, value_base64=base64.b64encode(b"abc").decode(), value_bytes=9)

    assert "value    null" in dead_letter_text(record(encode(DeadLetter(**whole))))
    assert "value    9 bytes, only the first 3 stored" in dead_letter_text(record(encode(cut)))


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000)])
def test_time_spans_have_units(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["5", "5 m", "-5m", "1w", ""])
def test_a_time_span_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time span such as 90s"):
        Duration().convert(text, None, None)


def test_a_time_that_no_calendar_has_is_told_as_its_number() -> None:
    """A node's clock is not to be trusted."""
    assert instant(2**52) == f"{2**52} ms"
    assert instant(-(2**62)) == f"{-(2**62)} ms"


def test_numbers_stand_to_the_right_in_a_table() -> None:
    assert table(["NAME", "N"], [["a", 7], ["long name", 1234]]).splitlines() == [
        "NAME          N",
        "a             7",
        "long name  1234",
    ]


def test_an_instant_is_utc() -> None:
    assert instant(0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\x9b2Jb", "a\u202eb", "a\rb"])
def test_what_is_shown_never_steers_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(f"one\n{text}")
    cells = table(["NAME"], [[f"{text}\nforged row"]])
    body = line(record(f'{{"version":"{text}"}}'.encode().replace(b"\x1b", b"").replace(b"\r", b"")), POLICY)

    assert all(one.isprintable() for one in capsys.readouterr().out.splitlines())
    assert [one.isprintable() for one in cells.splitlines()] == [True, True]
    assert body.isprintable()


def test_a_log_line_of_a_record_is_one_line() -> None:
    """What a record says is logged, too: it must not forge a line or clear the screen."""
    record = logging.makeLogRecord(
        {"msg": "refused", "levelno": logging.INFO, "why": "\x1b[2J\n00:00:00 agent  all is well"}
    )
    written = _Formatter("agent", _human).format(record)

    assert written.isprintable()
