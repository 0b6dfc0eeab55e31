"""Offset ranges per partition that identify an account's input. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slacktide.schemas.bounds import Count
from slacktide.streams.records import Place, Record


class Range(msgspec.Struct, kw_only=True):
    """The range read of one partition."""

    topic: str
    partition: Count
    first_offset: Count
    last_offset: Count
    records: Count
    first_ms: int
    """Record timestamps; not monotonic where producers set them."""
    last_ms: int


class Offsets:
    """Notes each record, and finds duplicates."""

    def __init__(self) -> None:
        self._ranges: dict[Place, Range] = {}

    def note(self, record: Record) -> bool:
        """Return whether the record is new; files may overlap."""
        known = self._ranges.get(record.place)
        if known is None:
            self._ranges[record.place] = Range(
                topic=record.topic,
                partition=record.partition,
                first_offset=record.offset,
                last_offset=record.offset,
                records=1,
                first_ms=record.timestamp_ms,
                last_ms=record.timestamp_ms,
            )
            return True
        # A recreated topic starts at 0 again, with later times.
        if record.offset <= known.last_offset and record.timestamp_ms <= known.last_ms:
            return False
        known.last_offset, known.last_ms = record.offset, record.timestamp_ms
        known.records += 1
        return True

    def ranges(self) -> list[Range]:
        """Return the ranges by topic and partition."""
        return [self._ranges[place] for place in sorted(self._ranges)]


class Within:
    """The ranges of an earlier account."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = {Place(one.topic, one.partition): one for one in ranges}

    def holds(self, record: Record) -> bool:
        """Return whether the record is in the ranges."""
        known = self._ranges.get(record.place)
        return known is not None and known.first_offset <= record.offset <= known.last_offset


def difference(asked: Sequence[Range], found: Sequence[Range]) -> str:
    """Return which records of an earlier account are gone; "": none."""
    by_place = {(one.topic, one.partition): one for one in found}
    for one in asked:
        here = by_place.get((one.topic, one.partition))
        if here is None:
            return f"{_span(one)} are gone"
        if (one.first_offset, one.last_offset, one.records) != (here.first_offset, here.last_offset, here.records):
            return f"{_span(one)} were {one.records} records; only {_span(here)} are here, {here.records} records"
    return ""


def _span(one: Range) -> str:
    return f"{one.topic} {one.partition}:{one.first_offset}-{one.last_offset}"
