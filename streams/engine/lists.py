"""Read back the pod lists that samples refer to at a takeover: from segments, else from earlier samples."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import WINDOW
from slacktide.streams.kafka import History
from slacktide.streams.records import Place, Record
from slacktide.streams.worker.lists import Lists

log = logging.getLogger(__name__)

SEARCHED_AT_ONCE, SEARCHED_MAX = 1_000, 5_000
"""Earlier samples per partition, 100 nodes for 50 s. A node without a list is ``skipped``, and sends a keyframe."""


async def read_lists(
    history: History, lists: Lists, place: Place, before: Sequence[Record], coming: Sequence[Record]
) -> None:
    """Read the facts and pod lists that samples of a partition refer to: ``before`` in order, and ``coming``.

    Most are in segments. A list that changed after its node's segment is in a later sample. These are searched, newest
    first, only if a list is missing.

    Raises:
        LogError: Kafka is unavailable.
    """
    first = coming[0]
    since_ms = first.timestamp_ms - LISTED_MS
    lists.adopt(reversed(before))
    samples = [*before, *coming]
    if not lists.lacking(samples):
        return
    segments = await history.span(WINDOW.name, place.partition, before=None, since_ms=since_ms)
    lists.adopt(reversed(segments))
    searched, lacking = 0, lists.lacking(samples)
    if lacking:
        oldest = samples[0].offset
        older = history.back(*place, before=oldest, since_ms=since_ms, at_once=SEARCHED_AT_ONCE)
        async for some in older:
            lists.adopt(some)
            searched += len(some)
            lacking = lists.lacking(samples)
            if not lacking or searched >= SEARCHED_MAX:
                break
        await older.aclose()
    log.info(
        "lists read back",
        extra={**place._asdict(), "segments": len(segments), "searched": searched, "lacking": len(lacking)},
    )
