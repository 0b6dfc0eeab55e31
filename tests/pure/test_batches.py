"""A batch that cannot be read costs itself only: whatever its bytes are, those before and behind it are read."""

import gzip
import struct
from collections.abc import Callable
from itertools import pairwise

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.streams.kafka import payload
from slacktide.streams.kafka.fetched import Naming
from slacktide.streams.kafka.payload import INFLATED_BYTES_MAX
from slacktide.streams.rendering import rendered_key
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
    read,
    record,
    sealed,
    varint,
)

COMPRESSED = [codec for codec in CODECS if codec != "none"]
MIB = 1 << 20


def three(codec: str = "none") -> list[Stored]:
    """Batches of 4, 5 and 3 records."""
    return [
        batch(0, [b"a%d" % n for n in range(4)], codec),
        batch(4, [b"b%d" % n for n in range(5)], codec),
        batch(9, [b"c%d" % n for n in range(3)], codec),
    ]


def values(found: list) -> list[bytes]:
    return [one.value for one in found if not isinstance(one.value, UnreadableBatch)]


def unreadable(found: list) -> list[tuple[int, int, str]]:
    """First and last offset of each, and why."""
    return [
        (one.value.first_offset, one.offset, one.value.reason)
        for one in found
        if isinstance(one.value, UnreadableBatch)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_as_they_were_written(codec: str) -> None:
    written = [b'{"node":"node-%d"}' % number * 40 for number in range(200)]
    found = read([batch(7, written, codec)], 7)
    assert [one.value for one in found] == written
    assert [one.offset for one in found] == list(range(7, 207))
    first = found[0]
    assert (first.topic, first.partition, first.key, first.headers, first.timestamp) == (
        "slacktide.node.sample.v2", 3, b"node-0", (("ce_id", b"0"),), 1_700_000_000_000,
    )  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_time_of_a_topic_that_is_stamped_by_the_broker_is_the_time_of_appending(codec: str) -> None:
    raw = bytearray(batch(0, [b"x", b"y"], codec, timestamp_ms=0).raw)
    raw[ATTRIBUTES_AT + 1] |= 0x08
    raw[MAX_TIME_AT : MAX_TIME_AT + 8] = struct.pack(">q", 1_800_000_000_000)
    found = read([Stored(0, 1, sealed(raw))])
    assert [(one.timestamp, one.timestamp_type) for one in found] == [(1_800_000_000_000, 1)] * 2


def test_gzip_of_several_members_is_read_whole() -> None:
    payload = batch(0, [b"x" * 50, b"y" * 50]).raw[HEADER_BYTES:]
    whole = packed(0, payload, "gzip", count=2)
    halves = gzip.compress(payload[:20]) + gzip.compress(payload[20:])
    raw = bytearray(whole.raw[:HEADER_BYTES]) + halves
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    assert values(read([Stored(0, 1, sealed(raw))])) == [b"x" * 50, b"y" * 50]


@pytest.mark.parametrize("position", range(12))
@pytest.mark.parametrize("codec", CODECS)
def test_reading_begins_within_a_batch(codec: str, position: int) -> None:
    assert [one.offset for one in read(three(codec), position)] == list(range(position, 12))


def test_a_batch_that_is_cut_off_comes_whole_with_the_next_fetch() -> None:
    stored = three()
    for size in range(len(stored[0].raw), sum(len(one.raw) for one in stored)):
        found = read(stored, fetch_bytes=size)
        assert [one.offset for one in found] == list(range(12))
        assert not unreadable(found)


def swap(at: int, packed_as: bytes, *, seal: bool = True) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        changed = raw[:at] + packed_as + raw[at + len(packed_as) :]
        return sealed(changed) if seal else changed

    return change


def old_format(magic: int) -> Callable[[bytes], bytes]:
    """A message as Kafka before 0.11 kept it; the offset is its last."""

    def change(_: bytes) -> bytes:
        message = struct.pack(">iBB", 0, magic, 0) + (b"\0" * 8 if magic else b"") + struct.pack(">ii", -1, -1)
        return struct.pack(">qi", 8, len(message)) + message

    return change


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "checksum": (swap(17, b"\0\0\0\0", seal=False), "checksum is wrong"),
    "codec 5": (swap(ATTRIBUTES_AT, b"\0\x05"), "codec 5 is unknown"),
    "codec 7": (swap(ATTRIBUTES_AT, b"\0\x07"), "codec 7 is unknown"),
    "not gzip": (swap(ATTRIBUTES_AT, b"\0\x01"), "gzip data is damaged"),
    "not snappy": (swap(ATTRIBUTES_AT, b"\0\x02"), "snappy data is damaged"),
    "not lz4": (swap(ATTRIBUTES_AT, b"\0\x03"), "lz4 data is damaged"),
    "not zstd": (swap(ATTRIBUTES_AT, b"\0\x04"), "zstd data is damaged"),
    "more records than there are": (swap(COUNT_AT, struct.pack(">i", 6)), "records are damaged"),
    "fewer records than there are": (swap(COUNT_AT, struct.pack(">i", 4)), "records are damaged"),
    "records without number": (swap(COUNT_AT, struct.pack(">i", 2**31 - 1)), "more than"),
    "a record of any length": (swap(HEADER_BYTES, varint(2**62)), "records are damaged"),
    "format 0": (old_format(0), "its format is 0"),
    "format 1": (old_format(1), "its format is 1"),
    "format 9": (swap(16, b"\x09", seal=False), "its format is 9"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_batch_is_named_by_its_offsets_and_the_others_are_read(how: str) -> None:
    change, why = DAMAGES[how]
    stored = three()
    stored[1] = Stored(4, 8, change(stored[1].raw))
    found = read(stored)
    assert values(found) == [b"a0", b"a1", b"a2", b"a3", b"c0", b"c1", b"c2"]
    [(first, last, reason)] = unreadable(found)
    assert (first, last) == (4, 8)
    assert why in reason


@pytest.mark.parametrize("how", DAMAGES)
def test_so_is_the_last_there_is(how: str) -> None:
    """Nothing behind it tells where it ends."""
    stored = three()[:2]
    stored[1] = Stored(4, 8, DAMAGES[how][0](stored[1].raw))
    found = read(stored)
    assert values(found) == [b"a0", b"a1", b"a2", b"a3"]
    gone = unreadable(found)
    assert (gone[0][0], gone[-1][1]) == (4, 8)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(gone)), "each offset is named once"


def test_what_is_not_to_be_read_is_passed_by() -> None:
    """A batch that only marks the end of a transaction, and one whose records were all compacted away."""
    stored = three()
    stored[0] = Stored(0, 3, swap(ATTRIBUTES_AT, b"\0\x30")(stored[0].raw))
    empty = bytearray(stored[1].raw[:HEADER_BYTES])
    empty[8:12], empty[COUNT_AT : COUNT_AT + 4] = struct.pack(">i", HEADER_BYTES - 12), struct.pack(">i", 0)
    stored[1] = Stored(4, 8, sealed(empty))
    assert [one.offset for one in read(stored)] == [9, 10, 11]


@given(
    codec=st.sampled_from(list(CODECS)),
    which=st.integers(0, 2),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    reseal=st.booleans(),
)
@example(codec="zstd", which=1, flips=[(761, 191)], reseal=False)  # its length ends within the batch behind it
def test_any_flipped_bytes_cost_at_most_their_batch(codec, which, flips, *, reseal) -> None:
    """Where the checksum is made right again, the batch may be read as something else.

    The offset of the last batch is the broker's word alone: nothing is there to doubt it by. So is how many offsets a
    batch has whose checksum is right: Kafka counts its records before it takes it.
    """
    stored = three(codec)
    hit = stored[which]
    raw = bytearray(hit.raw)
    for at, mask in flips:
        spared = (which == 2 and at % len(raw) < 8) or (reseal and DELTA_AT <= at % len(raw) < MAX_TIME_AT)
        raw[MAX_TIME_AT if spared else at % len(raw)] ^= mask
    stored[which] = Stored(hit.base, hit.last, sealed(raw) if reseal else bytes(raw))
    found = read(stored)
    others = [one for one in three(codec) if one.base != hit.base]
    sound = [one.offset for one in found if not hit.base <= one.offset <= hit.last]
    assert sound == [offset for one in others for offset in range(one.base, one.last + 1)]
    assert [one.offset for one in found] == sorted({one.offset for one in found})


@pytest.mark.parametrize("length", [1_000, 2**31 - 1, 2**40, 2**62])
def test_a_length_that_points_outside_the_batch_ends_no_process(length: int) -> None:
    """The checksum is right, and a header name that is no UTF-8 leads to the client's reader in Python."""
    stored = three()
    raw = bytearray(stored[1].raw[:HEADER_BYTES])
    header = varint(1) + varint(1) + b"\xff" + varint(-1)
    for key_length in (-1, length, length, length, length):
        body = b"\0\0\0" + varint(key_length) + varint(0) + header
        raw += varint(len(body)) + body
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    stored[1] = Stored(4, 8, sealed(raw))
    found = read(stored)

    assert [one.offset for one in found if not 4 <= one.offset <= 8] == [0, 1, 2, 3, 9, 10, 11]
    assert [(first, last) for first, last, _ in unreadable(found)] == [(4, 8)]


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**62))
def test_any_bytes_at_all_raise_nothing(raw: bytes, position: int) -> None:
    records = fetched(raw, position)
    list(records)
    assert records.next_fetch_offset > position


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    ("inflates_to", "reads"), [(INFLATED_BYTES_MAX - 100, True), (INFLATED_BYTES_MAX + 100, False)]
)
def test_a_batch_is_inflated_up_to_a_limit(codec: str, inflates_to: int, *, reads: bool) -> None:
    stored = three()
    around = len(record(0, b"\0" * (inflates_to // 5))) - inflates_to // 5
    payload = b"".join(record(number, b"\0" * (inflates_to // 5 - around)) for number in range(5))
    assert abs(len(payload) - inflates_to) < 10
    stored[1] = packed(4, payload, codec, count=5)
    found = read(stored)
    assert [one.offset for one in found if one.value] == [0, 1, 2, 3, *(range(4, 9) if reads else ()), 9, 10, 11]
    if not reads:
        assert unreadable(found) == [
            (4, 8, f"a batch cannot be read: its {codec} data inflates to more than {INFLATED_BYTES_MAX} bytes")
        ]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_many_records_or_headers_in_few_bytes_are_not_read(codec: str) -> None:
    stored = three()
    small = b"".join(record(number, b"") for number in range(100_000))
    headers = record(0, b"", varint(2_000_000) + b"\x00\x01" * 2_000_000)
    for raw, count in ((small, 100_000), (headers, 1)):
        stored[1] = packed(4, raw, codec, count=count)
        behind = batch(4 + count, [b"z"])
        found = read([stored[0], stored[1], behind])
        assert values(found) == [b"a0", b"a1", b"a2", b"a3", b"z"]
        [(first, last, reason)] = unreadable(found)
        assert (first, last) == (4, 3 + count)
        assert "take more than" in reason


def test_of_one_fetch_no_more_is_read_at_once_than_fits() -> None:
    """Twenty batches of a kilobyte, each of which inflates to 15 MiB."""
    stored = [packed(n, record(0, b"\0" * (15 * MIB)), "zstd", count=1) for n in range(20)]
    records = fetched(b"".join(one.raw for one in stored))
    assert len(list(records)) == 2
    assert len(read(stored)) == 20


def test_a_record_keeps_a_few_headers() -> None:
    payload = record(
        0, b"v", varint(500) + b"".join(varint(1) + b"h" + varint(1) + b"%d" % (n % 10) for n in range(500))
    )
    [one] = read([packed(0, payload, "none", count=1)])
    assert len(one.headers) == 64


def test_a_record_whose_header_names_are_no_text_is_read_without_them() -> None:
    payload = record(0, b"one", varint(1) + varint(2) + b"\xff\xfe" + varint(-1)) + record(1, b"two")
    for codec in CODECS:
        found = read([packed(5, payload, codec, count=2)], 5)
        assert [(one.offset, one.value, one.headers) for one in found] == [(5, b"one", ()), (6, b"two", ())]


@pytest.mark.parametrize("codec", [payload.LZ4, payload.ZSTD])
def test_what_was_inflated_stays_when_more_is(codec: int) -> None:
    compress = {payload.LZ4: cramjam.lz4.compress, payload.ZSTD: cramjam.zstd.compress}[codec]
    wanted = [b"long" * 40_000, b"short", b"", b"longer" * 400_000, b"last"]
    assert [payload.inflated(codec, bytes(compress(one))) for one in wanted] == wanted
    with pytest.raises(payload.UnreadableError, match="inflates to more than 99 bytes"):
        payload.inflated(codec, bytes(compress(b"x" * 100)), 99)


KEYS = [b"node-1", b"node-10", b"n" * 63, b"n" * 64, b"n" * 300]


@given(
    keys=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(list(CODECS)), st.booleans()), min_size=1, max_size=6
    ),
    key=st.sampled_from(KEYS),
    position=st.integers(0, 7),
)
def test_a_reader_of_one_node_finds_its_records_and_what_cannot_be_read(
    keys: list[tuple[bytes, str, bool]], key: bytes, position: int
) -> None:
    raw = b""
    for number, (its, codec, damaged) in enumerate(keys):
        stored = bytearray(batch(2 * number, [b"to node-1", b"x"], codec, key=its).raw)
        if damaged:
            stored[-1] ^= 0xFF
        raw += bytes(stored)
    every, some = (
        fetched(raw, position),
        fetched(raw, position, Naming({PLACE.topic: [b"\0nobody", rendered_key(key)]})),
    )
    found = list(some)
    wanted = [one for one in every if one.key == key or isinstance(one.value, UnreadableBatch)]
    assert [one for one in found if one.key == key or one.key is None] == wanted
    assert some.next_fetch_offset == every.next_fetch_offset
    assert {one.key for one in found} <= {key, None}, "others are not decoded"


def test_a_topic_of_which_all_is_needed_is_not_searched() -> None:
    raw = batch(0, [b"a", b"b"], key=b"other").raw
    assert len(list(fetched(raw, 0, Naming({"another": [b"node-1"]})))) == 2
