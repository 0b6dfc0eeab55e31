"""Parts of manifests that users wrote, and changes of them as merge patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import CaseError
from slacktide.schemas.text import shown

Json = dict[str, Any]
Path = tuple[str | int, ...]
Changes = dict[Path, Any]
"""New values by path; None removes."""
T = TypeVar("T")


def dotted(path: Path) -> str:
    """Return a path as text, such as ``spec.groups[0].replicas``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


class Part:
    """A part of a manifest. Null is absent. Each method raises CaseError with the path if it is of another type."""

    __slots__ = ("keys", "value")

    def __init__(self, value: object, keys: Path = ()) -> None:
        self.value, self.keys = value, keys

    @property
    def there(self) -> bool:
        """Return whether it is present."""
        return self.value is not None

    def __getitem__(self, path: str) -> Part:
        """Return what is at a dotted path below it."""
        found = self
        for name in path.split("."):
            found = Part(found.map().get(name), (*found.keys, name))
        return found

    def map(self) -> Mapping[str, Any]:
        """Return a map; absent is empty."""
        return self._of(dict, {}, "a map")

    def parts(self) -> list[Part]:
        """Return the items of a list; absent is empty."""
        return [Part(one, (*self.keys, at)) for at, one in enumerate(self._of(list, [], "a list"))]

    def text(self) -> str:
        """Return a text; absent is empty."""
        return self._of(str, "", "a text")

    def texts(self) -> dict[str, str]:
        """Return a map of texts."""
        return {key: Part(one, (*self.keys, key)).text() for key, one in self.map().items() if one is not None}

    def flag(self) -> bool:
        """Return a boolean; absent is false."""
        return self._of(bool, default=False, accepted="true or false")

    def whole(self, default: int) -> int:
        """Return a number from 0 to 2147483647."""
        found = self._of(int, default, f"a whole number from 0 to {INT32_MAX}")
        if isinstance(found, bool) or not 0 <= found <= INT32_MAX:
            raise CaseError(dotted(self.keys), f"{shown(found)}; accepted: a whole number from 0 to {INT32_MAX}")
        return found

    def each(self, path: str) -> Iterator[Part]:
        """Yield what is at a path in which ``name[]`` is each item of a list, and ``*`` each value of a map."""
        first, _, rest = path.partition(".")
        if first == "*":
            found = [Part(one, (*self.keys, key)) for key, one in self.map().items()]
        elif first.endswith("[]"):
            found = self[first.removesuffix("[]")].parts()
        else:
            found = [self[first]]
        for one in found:
            if rest:
                yield from one.each(rest)
            else:
                yield one

    def _of(self, kind: type[T], default: T, accepted: str) -> T:
        if self.value is None:
            return default
        if not isinstance(self.value, kind):
            raise CaseError(dotted(self.keys), f"{shown(self.value)}; accepted: {accepted}")
        return self.value


def converted(part: Part, kind: type[T]) -> T:
    """Convert a part to a type. Raises CaseError."""
    try:
        return msgspec.convert(part.value, kind, strict=False)
    except msgspec.ValidationError as exc:
        what, _, at = str(exc).partition(" - at `")
        raise CaseError(dotted(part.keys) + at.strip("`").removeprefix("$"), what) from exc


def value_at(raw: Any, path: Path) -> Any:
    """Return the value at a path; None: it is absent."""
    for key in path:
        if isinstance(raw, list) and isinstance(key, int) and key < len(raw):
            raw = raw[key]
        elif isinstance(raw, dict):
            raw = raw.get(key)
        else:
            return None
    return raw


def changed(raw: Json, changes: Mapping[Path, Any]) -> Json:
    """Return a changed copy, which shares the parts that did not change."""
    for path, value in changes.items():
        raw = _put(raw, path, value)
    return raw


def _put(node: Any, path: Path, value: Any) -> Any:
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return [_put(one, rest, value) if at == key else one for at, one in enumerate(node)]
    kept = dict(node or {})
    if rest:
        if value is not None or kept.get(str(key)) is not None:
            kept[str(key)] = _put(kept.get(str(key)), rest, value)
    elif value is None:
        kept.pop(str(key), None)
    else:
        kept[str(key)] = value
    return kept


def merge_patch(raw: Json, changes: Mapping[Path, Any]) -> Json:
    """Return the merge patch of changes. A list is replaced whole, so all of it is in the patch as it was read."""
    after, body = changed(raw, changes), Json()
    for path in changes:
        whole = next((path[:at] for at, key in enumerate(path) if isinstance(key, int)), path)
        node = body
        for key in whole[:-1]:
            node = node.setdefault(str(key), {})
        node[str(whole[-1])] = _difference(value_at(raw, whole), value_at(after, whole))
    return body


def _difference(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    found = {key: _difference(before.get(key), value) for key, value in after.items() if before.get(key) != value}
    return found | dict.fromkeys(before.keys() - after.keys())
