"""Produce requests: byte for byte those of the client."""

import pytest
from aiokafka.protocol import produce
from aiokafka.protocol.types import Schema
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.kafka.connecting import Pieces, PiecesWriter, ProduceSchema

VERSIONS = [getattr(produce, f"ProduceRequest_v{number}") for number in range(3, 9)]

some_parts = st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=40) | st.just(bytes(70_000))), max_size=4)
some_topics = st.lists(st.tuples(st.text(max_size=9), some_parts), max_size=4)


@given(st.none() | st.text(max_size=5), st.sampled_from([-1, 0, 1]), st.integers(0, 60_000), some_topics)
def test_a_request_is_the_one_that_the_client_makes(transactional_id, acks, timeout_ms, topics) -> None:
    made = produce.ProduceRequest_v7(transactional_id, acks, timeout_ms, topics).encode()

    plain = Schema.encode(produce.ProduceRequest_v7.SCHEMA, [transactional_id, acks, timeout_ms, topics])
    assert b"".join(made.parts) == plain
    assert len(b"front" + made) == 5 + len(plain)
    assert produce.ProduceRequest_v7.decode(plain).topics == topics


def test_records_in_pieces_are_joined_on_the_wire() -> None:
    made = [
        b"".join(produce.ProduceRequest_v7(None, -1, 9, [("t", [(3, records)])]).encode().parts)
        for records in ((b"ab", b"cde"), b"abcde")
    ]

    assert made[0] == made[1]


class Written:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.write = self.pieces.append
        self.writelines = self.pieces.extend


def test_pieces_are_written_as_they_are_with_what_the_client_puts_before_them() -> None:
    kept, large = Written(), bytes(9)
    writer = PiecesWriter(kept)
    writer.write(b"size" + (b"header" + Pieces([b"body", large])))
    writer.write(b"plain")

    assert kept.pieces == [b"size", b"header", b"body", large, b"plain"]
    assert kept.pieces[3] is large


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_that_has_this_schema_is_encoded_in_one_step(version: type) -> None:
    assert isinstance(version.SCHEMA, ProduceSchema)
    assert version.SCHEMA.repr([None, 1, 2, []]).startswith("(transactional_id=")


@pytest.mark.parametrize("number", range(3))
def test_older_versions_stay_as_they_are(number: int) -> None:
    assert type(getattr(produce, f"ProduceRequest_v{number}").SCHEMA) is Schema
