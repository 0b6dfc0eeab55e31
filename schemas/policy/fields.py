"""A strategy's fields by dotted name, such as ``be.mem.priority``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from slacktide.schemas.message import Message

M = TypeVar("M", bound=Message)


def value_at(strategy: Message, field: str) -> object:
    """The field's value."""
    value: object = strategy
    for name in field.split("."):
        value = getattr(value, name)
    return value


def leaves(strategy: Message, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every field with its value, in declared order."""
    for name in strategy.__struct_fields__:
        value = getattr(strategy, name)
        if isinstance(value, Message):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def replaced(strategy: M, given: Mapping[str, object]) -> M:
    """The strategy with these fields in place; parts in which nothing changes stay the very same objects.

    What is left out on the wire is found by identity, so that equal strategies are equal bytes.
    """
    own = {field: value for field, value in given.items() if "." not in field}
    for part in dict.fromkeys(field.partition(".")[0] for field in given if "." in field):
        below = {field.partition(".")[2]: value for field, value in given.items() if field.startswith(f"{part}.")}
        own[part] = replaced(getattr(strategy, part), below)
    changed = {field: value for field, value in own.items() if value != getattr(strategy, field)}
    return msgspec.structs.replace(strategy, **changed) if changed else strategy
