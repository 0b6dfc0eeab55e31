"""A record whose header name is no UTF-8, as no client of Python's would write it."""

import struct
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

MARKER, BAD = "marker", b"\xff\xfe\xff\xfe\xff\xfe"
"""Of equal length, so that nothing moves in the batch."""


async def put_bad_header(
    bootstrap: str, topic: str, partition: int, records: Sequence[tuple[bytes, bytes, str]]
) -> None:
    """Write key, value and header name of each record in one batch; a header called ``MARKER`` becomes a bad one."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        await producer.partitions_for(topic)
        batch = producer.create_batch()
        for key, value, name in records:
            batch.append(key=key, value=value, timestamp=None, headers=[(name, b"1")])
        batch.close()
        batch._build()
        raw = bytearray(batch._buffer.replace(MARKER.encode(), BAD))
        raw[17:21] = struct.pack(">I", calc_crc32c(bytes(raw[21:])))
        batch._buffer = bytes(raw)
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()
