"""Fetched batches as columns: the same records and positions as the careful reader finds, whatever the bytes are."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.streams.columns import batches
from slacktide.streams.kafka.fetched import FetchedBatches, FetchedBytes, FetchedRecords, at_once, walked
from slacktide.streams.kafka.payload import INFLATED_BYTES_MAX
from slacktide.streams.taken import Taken
from testbed.batches import (
    ATTRIBUTES_AT,
    CODECS,
    COUNT_AT,
    DELTA_AT,
    HEADER_BYTES,
    MAX_TIME_AT,
    PLACE,
    Stored,
    batch,
    fetched,
    packed,
    record,
    sealed,
    squeezed,
    varint,
)

ROWS = tuple[int, int, bytes | None, bytes | None, tuple, tuple[int, str] | None]


def taken_apart(raw: bytes, position: int) -> tuple[Taken, int]:
    """The fetched records of one partition, and the position behind them."""
    fetched = walked(raw, position, INFLATED_BYTES_MAX)
    return batches.columns([fetched])[0], fetched.position


@contextmanager
def arrays_from(records: int) -> Iterator[None]:
    """So many records together are taken apart in arrays; fewer one by one."""
    before, batches.FEW = batches.FEW, records
    try:
        yield
    finally:
        batches.FEW = before


def unreadable(value: bytes | None) -> tuple[int, str] | None:
    return (value.first_offset, value.reason) if isinstance(value, UnreadableBatch) else None


def rows_of(taken: Taken) -> list[ROWS]:
    found = zip(taken.offsets, taken.times_ms, taken.keys, taken.values, range(len(taken)), strict=True)
    return [(*row[:4], tuple(taken.headers_of(row[4])), unreadable(row[3])) for row in found]


def with_care(raw: bytes, position: int) -> tuple[list[ROWS], int]:
    """What the careful reader finds, and its position."""
    records = fetched(raw, position)
    rows = [(one.offset, one.timestamp, one.key, one.value, one.headers, unreadable(one.value)) for one in records]
    return rows, records.next_fetch_offset


def in_columns(raw: bytes, position: int) -> tuple[list[ROWS], int]:
    taken, after = taken_apart(raw, position)
    return rows_of(taken), after


def made(base: int, records: list[tuple], codec: str = "none", *, append_ms: int | None = None) -> Stored:
    """A batch of records: time, key, value, headers; with the time of appending where the broker stamps."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for number, (time_ms, key, value, headers) in enumerate(records):
        builder.append(number, time_ms, key, value, headers)
    raw = bytearray(builder.build())
    raw[HEADER_BYTES:] = squeezed(codec, bytes(raw[HEADER_BYTES:]))
    raw[:8] = struct.pack(">q", base)
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    raw[ATTRIBUTES_AT + 1] = CODECS[codec] | (0 if append_ms is None else 0x08)
    if append_ms is not None:
        raw[MAX_TIME_AT : MAX_TIME_AT + 8] = struct.pack(">q", append_ms)
    return Stored(base, base + len(records) - 1, sealed(raw))


texts = st.text(max_size=6)
some_bytes = st.none() | st.binary(max_size=8) | st.integers(60, 300).map(bytes)
records_made = st.tuples(
    st.integers(1_700_000_000_000, 1_700_000_000_300) | st.integers(0, 2**40),
    some_bytes,
    some_bytes,
    st.lists(st.tuples(texts, some_bytes), max_size=4) | st.just([("h", b"")] * 70),
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Batches of one partition, plain and odd, and a position in them."""
    base = start = draw(st.integers(0, 5))
    raw = b""
    for _ in range(draw(st.integers(1, 5))):
        codec = draw(st.sampled_from(["none"] * 6 + list(CODECS)))
        append_ms = draw(st.none() | st.integers(0, 2**40))
        stored = made(base, draw(st.lists(records_made, min_size=1, max_size=4)), codec, append_ms=append_ms)
        one = bytearray(stored.raw)
        odd = draw(st.sampled_from([""] * 6 + ["flip", "reseal", "control", "format", "cut off", "count", "gap"]))
        if odd in ("flip", "reseal"):
            one[draw(st.integers(0, len(one) - 1))] ^= draw(st.integers(1, 255))
        elif odd == "control":
            one[ATTRIBUTES_AT + 1] |= 0x20
        elif odd == "format":
            one[16] = draw(st.integers(0, 9))
        elif odd == "cut off":
            one = one[: draw(st.integers(1, len(one)))]
        elif odd == "count":
            one[COUNT_AT : COUNT_AT + 4] = struct.pack(">i", draw(st.integers(-1, 9)))
        elif odd == "gap":
            one[DELTA_AT : DELTA_AT + 4] = struct.pack(">i", draw(st.integers(-1, 9)))
        raw += sealed(one) if odd in ("reseal", "control", "count", "gap") and len(one) > HEADER_BYTES else bytes(one)
        base = stored.last + 1
    return raw, draw(st.just(start) | st.integers(0, base + 1))


@given(logs(), st.sampled_from([1, batches.FEW]))
def test_records_and_positions_are_those_of_the_careful_reader(log: tuple[bytes, int], few: int) -> None:
    raw, position = log
    with arrays_from(few):
        assert in_columns(raw, position) == with_care(raw, position)


numbers = st.integers(-3, 3) | st.integers(0, 2**62) | st.just(-(2**62))


@given(
    st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers, numbers), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2),
)
def test_so_are_those_of_a_batch_whose_numbers_are_anything(fields: list[tuple], bytes_at: list) -> None:
    """Its checksum is right, and a varint may be of ten bytes."""
    payload = b""
    for place, (attributes, since_ms, delta, key, value, header) in enumerate(fields):
        body = varint(attributes) + varint(since_ms) + varint(place + delta) + varint(key) + b"k" * (key % 3)
        body += varint(value) + b"v" * (value % 3) + varint(1) + varint(header) + b"h" * (header % 3) + varint(-1)
        payload += varint(len(body)) + body
    for at, byte in bytes_at:
        payload = payload[:at] + bytes([byte]) + payload[at + 1 :]
    raw = packed(0, payload, "none", count=len(fields)).raw + batch(len(fields), [b"behind"]).raw
    with arrays_from(1):
        assert in_columns(raw, 0) == with_care(raw, 0)


def test_fetches_of_several_partitions_are_taken_apart_together() -> None:
    logs = [
        b"".join(batch(base, [b"%d/%d" % (place, base + n) for n in range(20)]).raw for base in (0, 20, 40))
        for place in range(3)
    ]
    damaged = bytearray(batch(20, [b"x"]).raw)
    damaged[-1] ^= 1
    logs[1] = batch(0, [b"a"] * 20, "zstd").raw + sealed(damaged) + batch(21, [b"c"] * 30).raw
    fetches = [walked(raw, 0, INFLATED_BYTES_MAX) for raw in [*logs, b""]]
    taken = batches.columns(fetches)
    for raw, found, fetch in zip(logs, taken, fetches, strict=False):
        assert (rows_of(found), fetch.position) == with_care(raw, 0)
    assert len(taken[3]) == 0


@pytest.mark.parametrize("few", [1, batches.FEW])
def test_a_record_whose_header_names_are_no_text_is_read_without_them(few: int) -> None:
    payload = record(0, b"one", varint(1) + varint(2) + b"\xff\xfe" + varint(-1)) + record(1, b"two")
    with arrays_from(few):
        taken, _ = taken_apart(packed(5, payload, "none", count=2).raw, 5)
    assert [tuple(taken.headers_of(place)) for place in range(2)] == [(), ()]
    assert taken.values == [b"one", b"two"]


def test_a_batch_whose_headers_are_damaged_is_unreadable_as_for_every_other_reader() -> None:
    headers = varint(1) + varint(9_000) + b"ce_id" + varint(0)
    raw = packed(0, record(0, b"v", headers) + record(1, b"w"), "none", count=2).raw
    with arrays_from(1):
        taken, position = taken_apart(raw, 0)
    assert (taken.offsets, position) == ([1], 2)
    assert isinstance(taken.values[0], UnreadableBatch)


def test_a_record_of_more_than_a_megabyte_is_read() -> None:
    raw = batch(0, [b"a", b"x" * (1 << 20), b"c"]).raw + batch(3, [b"y" * ((1 << 20) - 200)]).raw
    assert in_columns(raw, 0) == with_care(raw, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_of_one_fetch_no_more_is_read_at_once_than_fits(codec: str) -> None:
    """Each inflates to 15 MiB; the plain ones are of records whose memory comes to as much."""
    if codec == "none":
        stored = [batch(base, [b""] * 20_000) for base in range(0, 200_000, 20_000)]
    else:
        stored = [packed(n, record(0, b"\0" * (15 << 20)), codec, count=1) for n in range(4)]
    raw = b"".join(one.raw for one in stored)
    taken, position = taken_apart(raw, 0)
    assert len(taken) == position == (40_000 if codec == "none" else 2)
    rest = b"".join(one.raw for one in stored if one.base >= position)
    assert taken_apart(rest, position)[0].offsets[0] == position


def test_records_are_the_same_objects_with_headers_that_are_parsed_when_asked_for() -> None:
    raw = batch(7, [b"v%d" % n for n in range(60)], key=b"node-1").raw
    taken, _ = taken_apart(raw, 7)
    found = taken.records("slacktide.node.sample.v2", 3)
    assert [one.offset for one in found] == list(range(7, 67))
    last = found[-1]
    assert (last.topic, last.partition, last.key, last.value) == ("slacktide.node.sample.v2", 3, b"node-1", b"v59")
    assert last.timestamp_ms == 1_700_000_000_000
    assert last.headers == (("ce_id", b"59"),)
    assert last.headers[-1] == ("ce_id", b"59")
    assert len(last.headers) == 1


def test_a_part_of_them_is_a_stretch_of_each_column() -> None:
    taken, _ = taken_apart(batch(0, [b"%d" % n for n in range(40)]).raw, 0)
    assert rows_of(taken.part(10, 30)) == rows_of(taken)[10:30]


def test_a_consumer_that_asks_for_whole_fetches_gets_one_of_a_partition() -> None:
    raw = batch(0, [b"a", b"b"]).raw + batch(2, [b"c"], "gzip").raw
    records = FetchedRecords(PLACE, FetchedBytes(raw), None, 1, None, at_once, True, 0)
    [whole] = list(records)
    assert isinstance(whole, FetchedBatches)
    assert records.next_fetch_offset == 3
    assert [one.offsets for one in batches.columns([whole])] == [[1, 2]]


def test_a_fetch_without_records_moves_the_position() -> None:
    raw = bytearray(batch(0, [b"a", b"b"]).raw)
    raw[ATTRIBUTES_AT + 1] |= 0x20
    records = FetchedRecords(PLACE, FetchedBytes(sealed(raw)), None, 0, None, at_once, True, 0)
    assert list(records) == []
    assert records.next_fetch_offset == 2
