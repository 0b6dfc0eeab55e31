"""The audit's topic, read to its end."""

from __future__ import annotations

from collections.abc import Callable

from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import AUDIT
from slacktide.streams.kafka import Tail, partition_counts
from slacktide.streams.records import Record

FETCH_WAIT_MS = 100
ALL = 1 << 60
"""Of a span no record is left out, however many there are."""


async def audit_records(
    bootstrap: Cluster, since_ms: int, until_ms: int, wanted: Callable[[Record], bool] | None = None
) -> list[Record]:
    """Records by the broker's time, in their order.

    Args:
        bootstrap: whom to ask.
        since_ms: UTC epoch, the first.
        until_ms: UTC epoch, behind the last.
        wanted: whether a record is to be handed on.

    Raises:
        LogError: it cannot be read to its end.

    """
    count = (await partition_counts(bootstrap, [AUDIT.name]))[AUDIT.name]
    if not count:
        raise LogError(f"{bootstrap}: no such topic: {AUDIT.name}; to do: slacktide topics apply {options(bootstrap)}")
    async with Tail(bootstrap, FETCH_WAIT_MS, most=ALL) as tail:
        read = await tail.read({(AUDIT.name, number): since_ms for number in range(count)}, wanted)
    within = (record for record in read.records if record.timestamp_ms < until_ms)
    return sorted(within, key=lambda record: (record.partition, record.offset))
