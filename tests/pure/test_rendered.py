"""Rendered records: byte for byte the batches that the client builds."""

from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.streams.kafka import Rendered
from slacktide.streams.kafka.rendered import RENDERED_BYTES_MAX, RenderedBatch, out_of, parts, size_bytes
from slacktide.streams.records import Out
from slacktide.streams.rendering import rendered, rendered_headers, rendered_key

PLACE = TopicPartition("slacktide.node.command.v1", 3)
AT_MS = 1_700_000_000_000

some_bytes = st.binary(max_size=9) | st.integers(60, 300).map(bytes) | st.integers(8_000, 20_000).map(bytes)
some_headers = st.lists(st.tuples(st.text(max_size=9), some_bytes), max_size=9)
some_records = st.lists(st.tuples(st.none() | some_bytes, st.none() | some_bytes, some_headers), min_size=1, max_size=9)


def render(records: list[tuple]) -> list[bytes]:
    return [rendered(rendered_key(key), value, rendered_headers(headers)) for key, value, headers in records]


@given(
    some_records | st.just([(b"k", b"v", [])] * 200), st.integers(0, 2**40), st.integers(0, 99), st.integers(0, 2**30)
)
@settings(deadline=None)
def test_a_batch_is_the_one_that_the_client_builds(records, producer_id, epoch, sequence) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, AT_MS, key, value, headers)
    builder.set_producer_state(producer_id, epoch, sequence)
    batch = RenderedBatch(render(records), AT_MS)
    most_bytes = batch.size()
    batch._set_producer_state(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    assert b"".join(batch._build()) == bytes(builder.build())
    assert batch._build() is batch._build(), "a retry sends the same bytes"
    assert (batch.record_count(), batch.closed()) == (len(records), True)
    assert batch.size() == len(b"".join(batch._build())) <= most_bytes


@given(some_records)
def test_a_rendered_record_can_be_read_again(records: list[tuple]) -> None:
    assert [out_of(PLACE, one) for one in render(records)] == [
        Out(topic=PLACE.topic, partition=3, key=key, value=value, headers=tuple(headers))
        for key, value, headers in records
    ]


@given(st.lists(st.lists(st.integers(0, 2_000_000), max_size=6), max_size=5))
@settings(deadline=None)
def test_records_go_out_in_order_in_batches_that_a_broker_takes(sizes: list[list[int]]) -> None:
    """But for one that is larger itself, which it may refuse."""
    batches = [Rendered("t", number % 2, [bytes(size) for size in each]) for number, each in enumerate(sizes)]
    made = parts(batches)
    everything = [(TopicPartition("t", batch.partition), record) for batch in batches for record in batch.records]

    assert all(size_bytes(part.records) <= RENDERED_BYTES_MAX or len(part.records) == 1 for part in made)
    assert sorted(number for part in made for number in range(part.first, part.first + len(part.records))) == list(
        range(len(everything))
    )
    for part in made:
        assert everything[part.first : part.first + len(part.records)] == [(part.place, one) for one in part.records]
    for number in range(2):
        firsts = [part.first for part in made if part.place.partition == number]
        assert firsts == sorted(firsts)


def test_no_second_batch_of_a_partition_goes_before_the_first_one_of_another() -> None:
    large = [bytes(RENDERED_BYTES_MAX - 200)] * 2
    made = parts([Rendered("t", 0, large), Rendered("t", 1, large), Rendered("t", 2, [])])

    assert [(part.place.partition, part.first) for part in made] == [(0, 0), (1, 2), (0, 1), (1, 3)]
