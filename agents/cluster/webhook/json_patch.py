"""Computes a JSON patch (RFC 6902) between two JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Operations that turn ``before`` into ``after``; empty if they are equal."""
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[Operation]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        yield from _of_lists(before, after, path)
    # In Python True equals 1; in JSON it does not.
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield {"op": "replace", "path": path, "value": after}


def _of_objects(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name, value in after.items():
        where = f"{path}/{_escaped(name)}"
        if name in before:
            yield from _operations(before[name], value, where)
        else:
            yield {"op": "add", "path": where, "value": value}


def _of_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[Operation]:
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        yield from _operations(one, other, f"{path}/{index}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
