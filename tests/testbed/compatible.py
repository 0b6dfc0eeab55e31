"""Whether two versions of a topic can live side by side: compares JSON Schemas, knows nothing of Slacktide.

Workers and agents are upgraded one after another, so it must hold both ways: a new reader reads what an old writer
wrote, an old reader what a new one writes. A new field that may be absent is fine, and so is a first limit far above
what any sound writer writes. All else is another topic, ``.v2``.
"""

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """Why readers or writers of the old schema could not live with the new one; empty when they can."""
    return _Comparison(old, new).compare(old, new, "$")


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})

    def compare(self, old: Schema, new: Schema, path: str) -> list[str]:
        one = _kinds(old, self._old)
        other = {
            kind if not part else _kind(_relaxed(part, one)): part for kind, part in _kinds(new, self._new).items()
        }
        found = [f"{path}: narrowed, no longer {kind}" for kind in one if kind not in other]
        found += [f"{path}: widened, may now be {kind}" for kind in other if kind not in one]
        for kind in one.keys() & other.keys():
            found += self._within(kind, one[kind], other[kind], path)
        return found

    def _within(self, limited: str, old: Schema, new: Schema, path: str) -> list[str]:
        kind = limited.partition(" ")[0]
        if kind == "object":
            return self._properties(old, new, path)
        if kind == "map":
            return self.compare(old["additionalProperties"], new["additionalProperties"], f"{path}.*")
        if kind == "array":
            return self.compare(old.get("items", {}), new.get("items", {}), f"{path}[]")
        return []

    def _properties(self, old: Schema, new: Schema, path: str) -> list[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        was, now = set(old.get("required", ())), set(new.get("required", ()))
        found = [f"{path}.{name}: removed" for name in before if name not in after]
        found += [f"{path}.{name}: new and required: older records lack it" for name in now - before.keys()]
        for name in before.keys() & after.keys():
            where = f"{path}.{name}"
            if (name in was) != (name in now):
                found.append(
                    f"{where}: {'may now be absent' if name in was else 'now required: older records lack it'}"
                )
            elif before[name].get("default") != after[name].get("default"):
                found.append(f"{where}: another default: records that leave it out change their meaning")
            found += self.compare(before[name], after[name], where)
        return sorted(found)


def _kinds(schema: Schema, defs: dict[str, Schema]) -> dict[str, Schema]:
    """All that a value may be, each with the part of the schema that says more about it."""
    if "$ref" in schema:
        return _kinds(defs[schema["$ref"].removeprefix("#/$defs/")], defs)
    if "anyOf" in schema:
        return {kind: part for each in schema["anyOf"] for kind, part in _kinds(each, defs).items()}
    if "enum" in schema:
        return {repr(value): {} for value in schema["enum"]}
    return {_kind(schema): schema}


def _relaxed(new: Schema, old: dict[str, Schema]) -> Schema:
    """The new type without limits that it has for the first time, and that no sound writer reaches."""
    before = [part for part in old.values() if part.get("type") == new.get("type")]
    first = {
        name
        for name, far in _FAR.items()
        if name in new and far(new[name]) and any(name not in part for part in before)
    }
    return {name: value for name, value in new.items() if name not in first}


def _kind(schema: Schema) -> str:
    kind = schema.get("type", "anything")
    if kind == "object":
        return "map" if "additionalProperties" in schema else "object"
    bounds = [f"{name} {schema[name]}" for name in _BOUNDS if name in schema]
    return " ".join([kind, *bounds])


_BOUNDS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "maxProperties",
)  # fmt: skip
_FAR: dict[str, Callable[[float], bool]] = {
    "minimum": lambda limit: limit <= 1,
    "maximum": lambda limit: limit >= 1_000,
    "maxLength": lambda limit: limit >= 128,
    "maxItems": lambda limit: limit >= 5_000,
    "maxProperties": lambda limit: limit >= 10_000,
}
"""Limits on a value or a length that may be set where none was."""
