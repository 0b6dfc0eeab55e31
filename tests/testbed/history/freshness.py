"""A node is marked stale only when nothing of it had come."""

from __future__ import annotations

from bisect import bisect_left

from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.topics import METRIC
from testbed.history.records import History
from testbed.history.verdict import Verdict, verdict

UNDER_WAY_MS = 2_500
"""A mark is judged by the tick before last, and then written."""


def only_silent_are_stale(history: History) -> Verdict:
    """In the time that a mark speaks of, no sample of the node was appended."""
    appended: dict[str, list[int]] = {}
    for entry in history.samples:
        appended.setdefault(entry.body.node, []).append(entry.at_ms)
    for times in appended.values():
        times.sort()
    marks = [entry for entry in history.of(METRIC, NodeMetric) if entry.body.stale_ms]
    broken = []
    for mark in marks:
        times = appended.get(mark.body.node, [])
        since_ms = mark.at_ms - mark.body.stale_ms + UNDER_WAY_MS
        index = bisect_left(times, since_ms)
        if index < len(times) and times[index] < mark.at_ms - UNDER_WAY_MS:
            broken.append(f"{mark.body.node}: silent {mark.body.stale_ms} ms at {mark.at_ms}, sample at {times[index]}")
    return verdict("only silent nodes stale", len(marks), broken)
