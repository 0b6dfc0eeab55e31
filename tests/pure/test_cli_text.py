"""Words for people: topic names, records as lines, tables, time spans."""

import base64
import json
import logging
import re
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.records import UnknownTopicError, dead_letter_row, dead_letter_text, line, topic_named
from slacktide.deploy.runtime.process import _Formatter, _human
from slacktide.deploy.runtime.text import Duration, instant, show, show_json, table
from slacktide.schemas.codec import encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, POLICY, SAMPLE, Topic
from slacktide.streams.records import Record

DEPLOY = Path(__file__).parents[2] / "deploy"


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
        ("slacktide.node.sample.v2", SAMPLE),
        ("node.sample.v2", SAMPLE),
        ("node.sample", SAMPLE),
        ("sample", SAMPLE),
        ("dead-letter", DEAD_LETTER),
    ],
)
def test_a_topic_goes_by_its_full_and_its_short_names(text: str, meant: Topic) -> None:
    assert topic_named(text) is meant


@pytest.mark.parametrize(
    ("text", "suggested"),
    [("node.commnd", "node.command"), ("slacktide.node.command.v2", "node.command"), ("node.sample.v1", "node.sample")],
)
def test_an_unknown_topic_is_answered_with_names_that_are_near(text: str, suggested: str) -> None:
    with pytest.raises(UnknownTopicError, match=f"no topic {text}; .*{suggested}"):
        topic_named(text)


def test_a_record_is_one_line_with_time_place_key_headers_and_body(snapshot) -> None:
    """The body is the record's own JSON, without its line breaks; a deletion and a missing key show as such."""
    lines = [
        line(record(b'{\n  "version": "v1",\n  "unknown": [1, 2]\n}'), POLICY),
        line(record(None, key=None), POLICY),
        line(record(b'{"seq": 1}'), COMMAND),
    ]
    assert "\n".join(lines) == snapshot


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


def test_a_dead_letter_is_a_row_with_its_origin_and_reason_and_shown_whole(snapshot) -> None:
    """Also one that is none, and one of a null or of a cut value."""
    whole = {"topic": "t", "partition": 0, "offset": 0, "reason": "r", "reader": "s", "refused_ms": 0}
    cut = DeadLetter(**whole, value_base64=base64.b64encode(b"abc").decode(), value_bytes=9)
    rows = [dead_letter_row(record(value)) for value in (encode(LETTER), b"?")]
    texts = [dead_letter_text(record(encode(one))) for one in (LETTER, DeadLetter(**whole), cut)]
    assert "\n\n".join([*map(str, rows), *texts]) == snapshot


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000)])
def test_time_spans_have_units(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["5", "5 m", "-5m", "1w", ""])
def test_a_time_span_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time span such as 90s"):
        Duration().convert(text, None, None)


def test_an_instant_is_utc_and_one_that_no_calendar_has_is_told_as_its_number() -> None:
    """A node's clock is not to be trusted."""
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert [instant(2**52), instant(-(2**62))] == [f"{2**52} ms", f"{-(2**62)} ms"]


def test_numbers_stand_to_the_right_in_a_table(snapshot) -> None:
    assert table(["NAME", "N"], [["a", 7], ["long name", 1234]]) == snapshot


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\x9b2Jb", "a\u202eb", "a\rb"])
def test_what_is_shown_never_steers_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(f"one\n{text}")
    cells = table(["NAME"], [[f"{text}\nforged row"]])
    body = line(record(f'{{"version":"{text}"}}'.encode().replace(b"\x1b", b"").replace(b"\r", b"")), POLICY)

    assert all(one.isprintable() for one in capsys.readouterr().out.splitlines())
    assert [one.isprintable() for one in cells.splitlines()] == [True, True]
    assert body.isprintable()


HOSTILE = "".join(map(chr, [*range(32), *range(127, 160), *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                            *range(0x2060, 0x2070), 0xFEFF, 0xE0001]))  # fmt: skip


def test_text_and_json_from_outside_are_shown_in_escapes_and_json_stays_equal(capsys) -> None:
    """C0, C1, the marks of direction and other format characters."""
    show(HOSTILE)
    show_json(msgspec.json.encode({HOSTILE: HOSTILE}))
    _, text, body = capsys.readouterr().out.split("\n")[-4:-1]

    assert text.isprintable()
    assert body.isprintable()
    assert json.loads(body) == {HOSTILE: HOSTILE}


@pytest.mark.parametrize("key", ["\x1b[2J", "\x9b2J", "\u202e", "\u200b"])
def test_lint_prints_no_character_of_a_policy_that_steers_a_terminal(key: str, tmp_path: Path) -> None:
    """In a key, a value, the ConfigMap's name, and the name of the file."""
    (tmp_path / f"{key}.yaml").write_text(
        json.dumps({"metadata": {"name": key}, "data": {"colocation-config": json.dumps({"enable": key, key: 1})}})
    )
    found = CliRunner().invoke(cli, ["policy", "lint", str(tmp_path / f"{key}.yaml")], color=True)
    absent = CliRunner().invoke(cli, ["policy", "lint", f"nofile{key}"], color=True)

    assert (found.exit_code, absent.exit_code) == (1, 1)
    assert all(line.isprintable() for line in (found.output + absent.output).splitlines())


def test_commands_print_only_what_is_escaped() -> None:
    """The lint bans click's functions; whoever writes to a stream directly writes a bar of progress, which is ours."""
    streams = {
        path.relative_to(DEPLOY).as_posix()
        for path in DEPLOY.rglob("*.py")
        if re.search(r"sys\.(stdout|stderr)\.(buffer|write)|\bConsole\(", path.read_text())
    }
    assert streams == {"demo/screen.py", "runtime/progress.py"}


def test_a_log_line_of_a_record_is_one_line() -> None:
    """What a record says is logged, too: it must not forge a line or clear the screen."""
    record = logging.makeLogRecord(
        {"msg": "refused", "levelno": logging.INFO, "why": "\x1b[2J\n00:00:00 agent  all is well"}
    )
    written = _Formatter("agent", _human).format(record)

    assert written.isprintable()
