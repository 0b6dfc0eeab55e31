"""Where a record stands in Kafka, and what is reported of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.topics import Topic
from slacktide.streams.records import Record

M = TypeVar("M", bound=Message)
Severity = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One record's place."""

    topic: str
    partition: int
    offset: int
    logged_ms: int
    """The record's timestamp, UTC epoch."""

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged(Generic[M]):
    """A record as it was read."""

    body: M
    place: Place

    def age_ms(self, now_ms: int) -> int:
        """By the log's clock; never below 0."""
        return max(0, now_ms - self.place.logged_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that an explanation comes to."""

    name: str
    """The same in every release: part and subject, such as ``agent.silent``."""
    severity: Severity
    text: str
    """What is, with its numbers."""
    advice: str = ""
    """What to do; "" where nothing is to be done."""


def place_of(record: Record) -> Place:
    """Where it stands."""
    return Place(topic=record.topic, partition=record.partition, offset=record.offset, logged_ms=record.timestamp_ms)


def logged(records: Iterable[Record], topic: Topic, kind: type[M], key: str | None = None) -> list[Logged[M]]:
    """The messages of a topic's records, in their order; those without one are passed over.

    Args:
        records: of any topics.
        topic: whose are meant.
        kind: its message.
        key: only records with this key; None: all. A null deletes what was published of the key before.

    """
    raw = None if key is None else key.encode()
    found: list[Logged[M]] = []
    for record in records:
        if record.topic != topic.name or (raw is not None and record.key != raw):
            continue
        if record.value is None:
            if raw is not None:
                found.clear()
            continue
        try:
            found.append(Logged(body=decode(record.value, kind), place=place_of(record)))
        except BadMessageError:  # a dead letter reports it
            continue
    return found


def newest(found: Iterable[Logged[M]], order: Callable[[M], tuple[str, int]]) -> Logged[M] | None:
    """The one of the highest boot and seq, for offsets are no order; among equals the last one."""
    best: Logged[M] | None = None
    for one in found:
        if best is None or order(one.body) >= order(best.body):
            best = one
    return best


def by_key(records: Iterable[Record], topic: Topic) -> dict[str, list[Record]]:
    """A topic's records by their key."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.topic == topic.name and record.key is not None:
            found.setdefault(record.key.decode(errors="backslashreplace"), []).append(record)
    return found
