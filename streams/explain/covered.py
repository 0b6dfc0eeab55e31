"""Finds the nodes whose latest figures are covered by heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.records import FIGURES, Record

Covered = Mapping[tuple[str, str], int]
"""The append time of the last covering heartbeat by topic and node, UTC epoch milliseconds."""


def covered_of(records: Iterable[Record]) -> Covered:
    """Process the heartbeats among records of any topics, each partition in order."""
    coverage, found = Coverage(), dict[tuple[str, str], int]()
    for record in records:
        if record.topic in FIGURES and is_heartbeat(record.key):
            with suppress(BadMessageError):
                nodes = coverage.receive(record, record.timestamp_ms / 1_000)
                found |= {(record.topic, node): record.timestamp_ms for node in nodes}
    return found
