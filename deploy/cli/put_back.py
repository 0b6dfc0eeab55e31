"""Decides which dead-lettered records to write again. Pure.

Any part may write dead letters, so their content is not trusted: they only point to a record. The original is written
again if it still exists, and only to a topic that tolerates duplicates.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slacktide.schemas.access import REPLAYABLE
from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.errors import BadMessageError
from slacktide.streams.kafka import TopicState
from slacktide.streams.records import Out, Record, clipped

HEADER = "ce_deadletter"
"""The header of a record that was written again: the original's position, as topic/partition:offset."""
OFFSET_DIGITS_MAX = 19
"""An offset has 63 bits."""

Fate = Literal["put back", "already there", "no such place", "expired", "changed", "unreadable", "batch"]
WHY: Mapping[Fate, str] = {
    "put back": "put back",
    "already there": "written earlier",
    "no such place": "not written: the topic has no such partition or record; check whether the topic was re-created",
    "expired": "not written: the original record has expired",
    "changed": "not written: the record is not the one in the dead letter; check whether the topic was re-created",
    "batch": "not written: the batch cannot be read; its producer must send its records again",
    "unreadable": "not written: the original record still cannot be decoded",
}
TOPICS = {topic.name: topic for topic in REPLAYABLE}


class Place(NamedTuple):
    """A record's position."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the position as in the header."""
        return f"{self.topic}/{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A dead letter and its own record."""

    record: Record
    body: DeadLetter

    @property
    def origin(self) -> Place:
        """Return the position of the rejected record; several readers may have rejected it."""
        return Place(self.body.topic, self.body.partition, self.body.offset)


@dataclass(slots=True)
class Found:
    """Originals that dead letters point to."""

    originals: dict[Place, Record] = field(default_factory=dict)
    put_back: set[Place] = field(default_factory=set)
    """Originals that were already written again."""

    def add(self, record: Record, wanted: frozenset[Place]) -> None:
        """Add a record at or after the first original of its partition, in order."""
        place = Place(record.topic, record.partition, record.offset)
        if place in wanted:
            self.originals[place] = record
        for raw in (raw for name, raw in record.headers if name == HEADER):
            original = self._marked(raw, record.topic, record.partition)
            # The header is not trusted: any producer of the topic may set it.
            if original is not None and (original.key, original.value) == (record.key, record.value):
                self.put_back.add(Place(original.topic, original.partition, original.offset))

    def _marked(self, raw: bytes, topic: str, partition: int) -> Record | None:
        offset = raw.decode(errors="replace").removeprefix(f"{topic}/{partition}:")
        known = offset.isdecimal() and len(offset) <= OFFSET_DIGITS_MAX
        return self.originals.get(Place(topic, partition, int(offset))) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result for one dead letter."""

    dead_letter: StoredDeadLetter
    fate: Fate
    out: Out | None = None


def dead_letter_of(record: Record) -> StoredDeadLetter | None:
    """Return the dead letter in a record; None: it is invalid."""
    try:
        return StoredDeadLetter(record=record, body=decode(record.value, DeadLetter))
    except BadMessageError:
        return None


def starts(dead_letters: Iterable[StoredDeadLetter], state: TopicState) -> dict[int, int]:
    """Return the offset to read from by partition; the end if no dead letter points to it."""
    first = dict(state.end)
    for dead_letter in dead_letters:
        topic, partition, offset = dead_letter.origin
        if topic == state.name and partition in first:
            first[partition] = min(first[partition], offset)
    return first


def steps(dead_letters: Sequence[StoredDeadLetter], found: Found, states: Mapping[str, TopicState]) -> list[Step]:
    """Decide on each dead letter, in order.

    Args:
        dead_letters: the selected ones.
        found: the originals.
        states: existing topics by name.
    """
    decided, done = [], set(found.put_back)
    for dead_letter in dead_letters:
        original = found.originals.get(dead_letter.origin)
        fate = _fate(dead_letter, original, states)
        if fate == "put back" and dead_letter.origin in done:
            fate = "already there"
        out = _out(dead_letter, original) if fate == "put back" and original is not None else None
        done.update([dead_letter.origin] if out is not None else [])
        decided.append(Step(dead_letter=dead_letter, fate=fate, out=out))
    return decided


def _fate(dead_letter: StoredDeadLetter, original: Record | None, states: Mapping[str, TopicState]) -> Fate:
    topic, partition, offset = dead_letter.origin
    state = states.get(topic)
    if dead_letter.body.last_offset is not None:
        return "batch"
    if topic not in TOPICS or state is None or offset >= state.end.get(partition, 0):
        return "no such place"
    if original is None:
        return "expired"
    if not _describes(dead_letter.body, original):
        return "changed"
    try:
        decode(original.value, TOPICS[topic].message)
    except BadMessageError:
        return "unreadable"
    return "put back"


def _describes(body: DeadLetter, original: Record) -> bool:
    """Return whether the dead letter describes this record, as far as it kept its content."""
    value = original.value or b""
    return (body.key, body.value_bytes) == (clipped(original.key), len(value)) and _kept(body) == value[
        :VALUE_BYTES_MAX
    ]


def _kept(body: DeadLetter) -> bytes | None:
    try:
        return base64.b64decode(body.value_base64 or "", validate=True)
    except binascii.Error:
        return None


def _out(dead_letter: StoredDeadLetter, original: Record) -> Out:
    """Return the original's bytes; from the dead letter only its position."""
    return Out(
        topic=original.topic,
        partition=original.partition,
        key=original.key,
        value=original.value,
        headers=(*(one for one in original.headers if one[0] != HEADER), (HEADER, str(dead_letter.origin).encode())),
    )
