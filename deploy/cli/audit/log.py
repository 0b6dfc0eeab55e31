"""Reads the audit topic to its end."""

from __future__ import annotations

from collections.abc import Callable

from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import AUDIT
from slacktide.streams.kafka import Tail, partition_counts
from slacktide.streams.records import Record

FETCH_WAIT_MS = 100
ALL = 1 << 60
"""No limit for the number of records."""


async def audit_records(
    bootstrap: Cluster, since_ms: int, until_ms: int, wanted: Callable[[Record], bool] | None = None
) -> list[Record]:
    """Read records in the order of broker time.

    Args:
        bootstrap: the Kafka cluster.
        since_ms: UTC epoch, inclusive.
        until_ms: UTC epoch, exclusive.
        wanted: selects records.

    Raises:
        LogError: the topic cannot be read to its end.
    """
    count = (await partition_counts(bootstrap, [AUDIT.name]))[AUDIT.name]
    if not count:
        raise LogError(
            f"{bootstrap}: topic {AUDIT.name} does not exist; create it: slacktide topics apply {options(bootstrap)}"
        )
    async with Tail(bootstrap, FETCH_WAIT_MS, most=ALL) as tail:
        read = await tail.read({(AUDIT.name, number): since_ms for number in range(count)}, wanted)
    within = (record for record in read.records if record.timestamp_ms < until_ms)
    return sorted(within, key=lambda record: (record.partition, record.offset))
