"""Defines records with their positions in Kafka, and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.topics import Topic
from slacktide.streams.explain.facts import WORST_FIRST, Severity, severity_of
from slacktide.streams.records import Record

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A record's position."""

    topic: str
    partition: int
    offset: int
    logged_ms: int
    """The record's timestamp, UTC epoch."""

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged(Generic[M]):
    """A decoded record."""

    body: M
    place: Place

    def age_ms(self, now_ms: int) -> int:
        """Return the age by Kafka's clock; at least 0."""
        return max(0, now_ms - self.place.logged_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of an explanation."""

    name: str
    """Stable identifier: part and subject, such as ``agent.silent``."""
    severity: Severity = field(init=False)
    """By the name, the same in every view."""
    text: str
    """The facts with numbers."""
    advice: str = ""
    """What to do; "": nothing."""

    def __post_init__(self) -> None:
        """Look the severity up."""
        object.__setattr__(self, "severity", severity_of(self.name))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: the worst first, of equal ones in their order."""
    return sorted(findings, key=lambda one: WORST_FIRST.index(one.severity))


def place_of(record: Record) -> Place:
    """Return the record's position."""
    return Place(topic=record.topic, partition=record.partition, offset=record.offset, logged_ms=record.timestamp_ms)


def logged(
    records: Iterable[Record],
    topic: Topic,
    kind: type[M],
    key: str | None = None,
    read: Callable[[Record], M] | None = None,
) -> list[Logged[M]]:
    """Return the messages of a topic, in order; invalid records are skipped.

    Args:
        records: of any topics.
        topic: the topic to select.
        kind: its message type.
        key: only this key; None: all. A tombstone removes earlier records of the key.
        read: decodes a record; None: by its kind.
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
            body = decode(record.value, kind) if read is None else read(record)
            found.append(Logged(body=body, place=place_of(record)))
        except BadMessageError:  # a dead letter reports it
            continue
    return found


def newest(found: Iterable[Logged[M]], order: Callable[[M], tuple[str, int]]) -> Logged[M] | None:
    """Return the message with the highest boot and seq; among equals the last."""
    best: Logged[M] | None = None
    for one in found:
        if best is None or order(one.body) >= order(best.body):
            best = one
    return best


def by_key(records: Iterable[Record], topic: Topic) -> dict[str, list[Record]]:
    """Return a topic's records by key."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.topic == topic.name and record.key is not None:
            found.setdefault(record.key.decode(errors="backslashreplace"), []).append(record)
    return found
