"""Where a recorded body and the one of the replay part: which record, which fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from slacktide.schemas.message import Message
from slacktide.streams.records import Record, text_of

EVIDENCE = ("decided_ms", "worker", "sample", "proof")
"""Of a command: who said it, when, and where the sample stood. Not what it says."""
ABSENT = "(absent)"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One place in a body."""

    path: str
    recorded: Any
    replayed: Any


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded body that the replay does not confirm, or an answer that is not there."""

    why: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str
    fields: list[Field] = []

    @property
    def when(self) -> tuple[int, int, int]:
        """Where it stands among others of its topic."""
        return self.timestamp_ms, self.partition, self.offset


def difference(record: Record, why: str, fields: list[Field] | None = None) -> Difference:
    """Of a record."""
    return Difference(
        why=why,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=text_of(record.key or b""),
        fields=fields or [],
    )


def content(message: Message) -> dict[str, Any]:
    """The body without what is evidence."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return {name: value for name, value in plain.items() if name not in EVIDENCE}


def fields(recorded: dict[str, Any], replayed: dict[str, Any]) -> list[Field]:
    """All places in which the two differ."""
    return list(_differing("", recorded, replayed))


def _differing(path: str, one: Any, other: Any) -> Iterator[Field]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from _differing(f"{path}.{name}" if path else name, one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            yield from _differing(
                f"{path}[{place}]", *(side[place] if place < len(side) else ABSENT for side in (one, other))
            )
    elif one != other or type(one) is not type(other):
        yield Field(path=path, recorded=one, replayed=other)
