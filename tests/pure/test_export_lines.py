"""The file of `slacktide topics export`: what goes in comes out, and what is wrong is told by its line."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.bounds import COUNT_MAX
from slacktide.schemas.topics import POLICY, SAMPLE, TICK, TOPICS
from slacktide.streams.analysis.replay.lines import (
    Header,
    TraceError,
    end_line,
    head_line,
    header_of,
    line_of,
    records_of,
)
from slacktide.streams.records import Record
from testbed.samples import body_of, keyframe, policy_record, record_of
from testbed.snapshots import refusal, situations

BODIES = st.none() | st.binary(max_size=40) | st.sampled_from([b"null", b"{}", b" {}", b"1\n", b'"\xff"', b"[1,2]"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
RECORDS = st.builds(
    Record,
    topic=st.sampled_from([topic.name for topic in TOPICS]),
    partition=st.integers(0, 100),
    offset=st.integers(0, COUNT_MAX),
    timestamp_ms=st.integers(-1, 2**52),
    key=st.none() | st.binary(max_size=10),
    value=BODIES,
    headers=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.binary(max_size=5))
    ).map(tuple),
)


def policies_first(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda one: one.topic != POLICY.name)


@given(st.lists(RECORDS, max_size=5).map(policies_first))
def test_every_record_comes_out_as_it_went_in(records: list[Record]) -> None:
    """Whatever its bytes are; each on a line of its own."""
    lines = [line_of(record) for record in records]

    assert all(line.count(b"\n") == 1 for line in lines)
    assert list(records_of([*lines, end_line(len(lines))], "f", headers=True)) == records


def test_a_body_stands_in_the_line_as_it_is() -> None:
    """So that `jq` and `grep` read an export."""
    record = record_of(keyframe(1))

    assert b'"body":' + body_of(keyframe(1)) in line_of(record)


def test_the_header_comes_out_as_it_went_in() -> None:
    header = Header(since_ms=5, until_ms=9, topics=(POLICY.name,))

    read = header_of(head_line(header), "f")

    assert (read.since_ms, read.until_ms, list(read.topics)) == (5, 9, [POLICY.name])


LINE = line_of(record_of(keyframe(1)))
TICKED = line_of(replace(record_of(keyframe(1)), topic=TICK.name))
TOLD = line_of(policy_record())


@situations(
    "lines",
    {
        "without its end": [LINE],
        "nothing but the header": [],
        "a line that is no record": [LINE, b"{}\n"],
        "a line that is no text": [b"\xff\n"],
        "a line nested beyond the stack": [LINE[:-2] + b',"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"],
        "a lost line": [LINE, end_line(2)],
        "a line after the end": [end_line(0), LINE],
        "another topic": [TICKED, end_line(1)],
        "a policy that comes too late": [LINE, TOLD, end_line(2)],
    },
)
def test_bad_lines_are_told_with_file_and_number(lines: list[bytes], snapshot) -> None:
    assert refusal(TraceError, lambda: list(records_of(lines, "f", topics=(SAMPLE.name, POLICY.name)))) == snapshot


@situations(
    "line",
    {
        "empty file": b"",
        "a record": LINE,
        "something else": head_line(Header(until_ms=0, format="tar")),
        "newer": head_line(Header(until_ms=0, version=2)),
    },
)
def test_a_file_of_another_kind_is_refused(line: bytes, snapshot) -> None:
    assert refusal(TraceError, lambda: header_of(line, "f")) == snapshot
