"""Extreme values in every field of a message, found by walking its type."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from slacktide.schemas.message import Message

Path = tuple[str | int, ...]


class Verbatim(str):
    """JSON that Python's own encoder would not write."""

    __slots__ = ()


EXTREMES: tuple[Any, ...] = (
    0, -1, 1, 2**31, 2**50 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**30),
    1.5, 1e308, -1e308, 1e-308, True, None, "", "x" * 1_000, "x" * 100_000, "\x00\u2028\U0010ffff", [], {}, [[]],
    {"": {"": []}}, Verbatim("1e400"), Verbatim("9" * 400), Verbatim("9" * 5_000), Verbatim("NaN"),
    Verbatim("[" * 2_000 + "]" * 2_000), Verbatim('"\\ud800"'),
)  # fmt: skip


def full(kind: type[Message]) -> dict[str, Any]:
    """A message as plain data with every field there is, one item in each list and map."""
    found: dict[str, Any] = _full(inspect.type_info(kind))
    return found


def _full(kind: inspect.Type) -> Any:
    found: Any = "1" if getattr(kind, "pattern", None) else "a"
    match kind:
        case inspect.StructType():
            found = {field.encode_name: _full(field.type) for field in kind.fields}
        case inspect.UnionType():
            found = _full(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.ListType() | inspect.VarTupleType():
            found = [_full(kind.item_type)]
        case inspect.DictType():
            found = {"key": _full(kind.value_type)}
        case inspect.LiteralType():
            found = kind.values[0]
        case inspect.IntType() | inspect.FloatType():
            found = max(1, kind.ge or 0)
        case inspect.BoolType():
            found = True
    return found


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in plain data but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in items:
        yield (*path, step)
        yield from paths(part, (*path, step))


def with_value(body: dict[str, Any], path: Path, value: Any) -> bytes:
    """The body as JSON, with another value at a place."""
    marker = "\x01here\x01"
    copied = json.loads(json.dumps(body))
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = marker
    raw = value if isinstance(value, Verbatim) else json.dumps(value)
    return json.dumps(copied, separators=(",", ":")).replace(json.dumps(marker), raw).encode()
