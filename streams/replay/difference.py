"""Describes a difference between a recorded and a replayed record: the record and its fields."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.message import Message
from slacktide.streams.records import Record, text_of

EVIDENCE = ("decided_ms", "worker", "sample", "proof")
"""Fields of a command that are not its content: writer, time, and the sample's position."""
ABSENT = "(absent)"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field."""

    path: str
    recorded: Any
    replayed: Any


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded record that the replay does not confirm, or a missing answer."""

    why: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str
    fields: list[Field] = []

    @property
    def when(self) -> tuple[int, int, int]:
        """Order within its topic."""
        return self.timestamp_ms, self.partition, self.offset


def difference(record: Record, why: str, fields: list[Field] | None = None) -> Difference:
    """Return a difference of a record."""
    return Difference(
        why=why,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=text_of(record.key or b""),
        fields=fields or [],
    )


def content(message: Message, *, ids: bool = True) -> dict[str, Any]:
    """Return the content without evidence; ``ids``: whether to include ids of parts."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    left = {name: value for name, value in plain.items() if name not in EVIDENCE}
    if ids:
        return left
    parts = {name: [_without_id(one) for one in value] for name, value in left.items() if isinstance(value, list)}
    return _without_id(left | parts)


def _without_id(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "id"}


def has_own_id(command: NodeCommand) -> bool:
    """Return whether a recorded command's id is correct, in the current or the older form."""
    return command.id in {_id(command_id, command), _id(_command_id_by_sample, command)}


def has_ids_by_sample(command: NodeCommand) -> bool:
    """Return whether its ids have the older form: a hash that includes the sequence number."""
    return command.id == _id(_command_id_by_sample, command)


def _id(form: Callable[[str, str, int, str, str, str], str], one: NodeCommand) -> str:
    return form(one.node, one.boot_id, one.seq, "answer", one.node, one.policy_version)


def _command_id_by_sample(*parts: str | int) -> str:
    return hashlib.sha256("\x00".join(map(str, parts)).encode()).hexdigest()[:16]


def fields(recorded: dict[str, Any], replayed: dict[str, Any]) -> list[Field]:
    """Return all differing fields."""
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
