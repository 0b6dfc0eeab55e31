"""Batches of records as a broker keeps them, whole and damaged, and a log of them that answers fetches."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.codec import snappy_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c, encode_varint

from slacktide.streams.kafka.fetched import FetchedBytes, FetchedRecords, Naming

PLACE = TopicPartition("slacktide.node.sample.v2", 3)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER_BYTES = 61
CRC_AT, ATTRIBUTES_AT, DELTA_AT, MAX_TIME_AT, COUNT_AT = 17, 21, 23, 35, 57


@dataclass(frozen=True)
class Stored:
    """One batch, and the offsets by which the broker finds it."""

    base: int
    last: int
    raw: bytes


def batch(
    base: int,
    values: Sequence[bytes],
    codec: str = "none",
    *,
    timestamp_ms: int = 1_700_000_000_000,
    key: bytes | None = None,
) -> Stored:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 30,
    )  # fmt: skip
    for number, value in enumerate(values):
        builder.append(number, timestamp_ms, key or b"node-%d" % number, value, [("ce_id", b"%d" % number)])
    raw = bytes(builder.build())
    return packed(base, raw[HEADER_BYTES:], codec, count=len(values), like=raw)


def packed(base: int, payload: bytes, codec: str, *, count: int, like: bytes | None = None) -> Stored:
    """A batch with a right checksum around any payload, which is compressed here."""
    like = like or batch(0, [b""]).raw
    body = squeezed(codec, payload)
    raw = bytearray(like[:HEADER_BYTES]) + body
    raw[0:8] = struct.pack(">q", base)
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    raw[ATTRIBUTES_AT + 1] = CODECS[codec]
    raw[DELTA_AT : DELTA_AT + 4] = struct.pack(">i", count - 1)
    raw[COUNT_AT : COUNT_AT + 4] = struct.pack(">i", count)
    return Stored(base, base + count - 1, sealed(raw))


def squeezed(codec: str, payload: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(payload)
        case "snappy":
            return snappy_encode(payload)
        case "lz4":
            compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            compressor.compress(payload)
            return bytes(compressor.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(payload))
    return payload


def sealed(raw: bytes | bytearray) -> bytes:
    return bytes(raw[:CRC_AT]) + struct.pack(">I", calc_crc32c(bytes(raw[ATTRIBUTES_AT:]))) + bytes(raw[ATTRIBUTES_AT:])


def varint(number: int) -> bytes:
    written = bytearray()
    encode_varint(number, written.append)
    return bytes(written)


def record(place: int, value: bytes, headers: bytes = b"\x00") -> bytes:
    """One record's bytes, with its headers as they are to be written."""
    body = b"\x00" + varint(0) + varint(place) + varint(-1) + varint(len(value)) + value + headers
    return varint(len(body)) + body


def fetched(raw: bytes, position: int = 0, naming: Naming | None = None) -> FetchedRecords:
    return FetchedRecords(PLACE, FetchedBytes(raw), None, position, None, naming, True, 0)


def read(stored: Sequence[Stored], position: int = 0, *, fetch_bytes: int = 1 << 20) -> list[Any]:
    """Fetch and read to the end as the client does: each fetch begins with the batch that holds the position."""
    found: list[Any] = []
    end = stored[-1].last + 1
    for _ in range(10_000):
        if position >= end:
            return found
        first, *others = (one.raw for one in stored if one.last >= position)
        records = fetched((first + b"".join(others))[: max(fetch_bytes, len(first))], position)
        found += list(records)
        assert records.next_fetch_offset > position, "each fetch goes on"
        position = records.next_fetch_offset
    raise AssertionError("it never ends")


def bomb(codec: str, size_bytes: int) -> Stored:
    """A batch of one record whose value is so many zeros; it is never held inflated."""
    zeros = b"\0" * (1 << 20)
    head = b"\0" + varint(0) + varint(0) + varint(4) + b"bomb" + varint(size_bytes)
    parts = [varint(len(head) + size_bytes + 1) + head, *[zeros] * (size_bytes >> 20), b"\0"]
    if codec == "gzip":
        press = zlib.compressobj(9, wbits=31)
        body = b"".join(press.compress(part) for part in parts) + press.flush()
    elif codec == "snappy":
        body = squeezed(codec, b"".join(parts))
    else:
        lz4 = codec == "lz4"
        made = cramjam.lz4.Compressor(content_checksum=False, block_linked=False) if lz4 else cramjam.zstd.Compressor()
        for part in parts:
            made.compress(part)
        body = bytes(made.finish())
    raw = bytearray(batch(0, [b""]).raw[:HEADER_BYTES]) + body
    raw[8:12] = struct.pack(">i", len(raw) - 12)
    raw[ATTRIBUTES_AT + 1] = CODECS[codec]
    return Stored(0, 0, sealed(raw))


async def append(bootstrap: str, topic: str, partition: int, stored: Stored) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=4 << 20, request_timeout_ms=120_000)
    await producer.start()
    try:
        await producer.partitions_for(topic)
        made = producer.create_batch()
        made.append(key=None, value=b"", timestamp=None)
        made.close()
        made._build()
        made._buffer = stored.raw
        return (await (await producer.send_batch(made, topic, partition=partition))).offset
    finally:
        await producer.stop()
