"""Which samples a takeover has to read again: those that no segment of their node holds."""

import pytest
from msgspec.structs import replace

from slacktide.schemas.codec import encode
from slacktide.schemas.topics import WINDOW
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.engine.rebuilding import newest_of, unsegmented, unsegmented_since_ms
from slacktide.streams.records import Record
from testbed.samples import record_of as bare_record
from testbed.samples import sample
from testbed.vectors import each_row

MINUTE_MS = 60_000


def sampled(observed_ms: int, *, appended_ms: int, node: str = "a") -> Record:
    made = replace(sample(1, node), observed_ms=observed_ms)
    return replace(bare_record(made), timestamp_ms=appended_ms)


def segment(minute: int, *, appended_ms: int, node: str = "a") -> Record:
    said = NodeWindowSegment(
        node=node,
        boot_id="",
        seq=0,
        observed_ms=(minute + 1) * MINUTE_MS,
        begin_ms=minute * MINUTE_MS,
        covered_ms=[],
        node_cpu_milli=[],
        node_mem_bytes=[],
        system_cpu_milli=[],
        system_mem_bytes=[],
    )
    return Record(
        topic=WINDOW.name, partition=0, offset=0, timestamp_ms=appended_ms, key=node.encode(), value=encode(said)
    )


def test_what_came_before_a_segment_of_its_own_minute_is_in_it() -> None:
    said = [segment(9, appended_ms=10 * MINUTE_MS + 2_000)]
    held = sampled(9 * MINUTE_MS + 50_000, appended_ms=9 * MINUTE_MS + 50_100)

    assert unsegmented([held], newest_of(said)) == []


@pytest.mark.parametrize("lag_ms", [0, 3_000, 20_000])
def test_what_came_while_the_owner_was_behind_is_in_no_segment_that_it_said_then(lag_ms: int) -> None:
    """The segment of a minute is said when its owner has read so far: later samples are in the log by then."""
    said = [segment(9, appended_ms=10 * MINUTE_MS + lag_ms)]
    later = [sampled(10 * MINUTE_MS + ms, appended_ms=10 * MINUTE_MS + ms + 100) for ms in (1_000, 2_000, 15_000)]

    assert unsegmented(later, newest_of(said)) == later


@pytest.mark.parametrize(
    "value", [b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", b"[", b"\xff", b'{"observed_ms":1e400}']
)
def test_no_record_of_a_node_ends_a_takeover(value: bytes) -> None:
    """Each worker that takes the partition over reads it again."""
    bad = replace(sampled(0, appended_ms=MINUTE_MS), value=value)

    assert unsegmented([bad], newest_of([segment(9, appended_ms=10 * MINUTE_MS)])) == []
    assert newest_of([replace(bad, topic=WINDOW.name)])[bad.key].over_ms == MINUTE_MS


def test_a_clock_that_was_set_back_makes_no_sample_old() -> None:
    said = [segment(9, appended_ms=10 * MINUTE_MS)]
    back = sampled(2 * MINUTE_MS, appended_ms=10 * MINUTE_MS + 1_000)

    assert unsegmented([back], newest_of(said)) == [back]


def test_without_a_segment_of_its_node_a_sample_is_in_none() -> None:
    other = sampled(MINUTE_MS, appended_ms=MINUTE_MS, node="b")

    assert unsegmented([other], newest_of([segment(9, appended_ms=10 * MINUTE_MS)])) == [other]


@each_row("said", "since_ms")
def test_samples_are_read_again_since_the_last_minute_that_was_said_of_all_living(said, since_ms) -> None:
    assert unsegmented_since_ms(newest_of([segment(**one) for one in said]), now_ms=610_000) == since_ms


def test_what_cannot_be_read_is_left_to_whoever_reads_it() -> None:
    first = sampled(MINUTE_MS, appended_ms=MINUTE_MS)
    bad = [replace(first, value=value) for value in (b"{", b'{"of":{', b'{"of":{},"now":[1,"x"]}')]

    unreadable = [replace(segment(9, appended_ms=0), value=value) for value in (b"{", None)]

    assert unsegmented(bad, newest_of([segment(9, appended_ms=10 * MINUTE_MS)])) == []
    assert newest_of(unreadable)[b"a"].over_ms == MINUTE_MS
