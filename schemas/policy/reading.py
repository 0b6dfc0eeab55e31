"""Reads the ConfigMap's JSON objects into a strategy's fields, and collects errors."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

import msgspec

from slacktide.schemas.errors import Finding
from slacktide.schemas.message import Message
from slacktide.schemas.policy.keys import Key, keys_of, replaced
from slacktide.schemas.policy.selector import Operator, Requirement, Selector
from slacktide.schemas.text import similar

UNREAD = frozenset({"extensions", "allocationStrategy"})
"""Keys of the reference that are a third party's, or of old."""
LABEL_CHARS_MAX = 253 + 1 + 63
_OPERATORS: dict[str, Operator] = {name: name for name in get_args(Operator)}
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_LABEL_KEY = re.compile(rf"(?:(?=.{{1,253}}/){_DOMAIN}/)?{_NAME}", re.ASCII)
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?", re.ASCII)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The known name that resembles an unknown one, as the end of a sentence; "": none."""
    near = similar(name, known, count_max=1)
    return f"; did you mean {near[0]}?" if near else ""


class Reader:
    """Reads values at paths of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.unknown: list[str] = []
        """Notes about unknown keys, which are mostly typing errors."""

    def refuse(self, field: str, value: object, accepted: str) -> None:
        """Gather one thing wrong."""
        text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        self.findings.append(Finding(file=self.file, field=field, value=text[:80], accepted=accepted))

    def note(self, field: str, text: str) -> None:
        """Gather one thing to know."""
        self.notes.append(f"{self.file}: {field}: {text}")

    def note_unknown(self, field: str, name: str, known: Collection[str]) -> None:
        """Note an unknown key, with the known one that it resembles."""
        self.note(field, "unknown, ignored" + did_you_mean(name, known))
        self.unknown.append(self.notes[-1])

    def check_names(self, body: Mapping[str, object], path: str, known: Collection[str]) -> None:
        """Note unknown keys."""
        for name in body:
            if name in UNREAD:
                self.note(f"{path}.{name}", "not yet in effect")
            elif name not in known:
                self.note_unknown(f"{path}.{name}", name, known)

    def mapping(self, value: object, path: str) -> dict[str, Any]:
        """A JSON object; null is an empty one, as everywhere in the reference."""
        if value is None or isinstance(value, dict):
            return value or {}
        self.refuse(path, value, "a JSON object")
        return {}

    def sequence(self, value: object, path: str) -> list[Any]:
        """A JSON list; null is an empty one."""
        if value is None or isinstance(value, list):
            return value or []
        self.refuse(path, value, "a list")
        return []

    def named(self, value: object, path: str, names: Iterable[str]) -> dict[str, Any]:
        """A JSON object with its keys in these capitals: the reference ignores the case of letters."""
        known = {name.lower(): name for name in names}
        found: dict[str, Any] = {}
        for key, one in self.mapping(value, path).items():
            name = known.get(key.lower(), key)
            if name != key:
                self.note(f"{path}.{key}", f"read as {name}")
            found[name] = one
        return found

    def given(self, value: object, path: str, kind: type[Message], other: Collection[str] = ()) -> dict[str, object]:
        """What an object sets of a strategy, by dotted field; ``other``: keys that are not the strategy's."""
        keys = keys_of(kind)
        body = self.named(value, path, keys)
        self.check_names(body, path, {*keys, *other})
        found: dict[str, object] = {}
        for name, one in body.items():
            if name in keys and one is not None:
                found |= self._key(one, f"{path}.{name}", keys[name])
        return found

    def _key(self, value: object, path: str, key: Key) -> dict[str, object]:
        if key.part is not None:
            return {f"{key.field}.{field}": one for field, one in self.given(value, path, key.part).items()}
        if key.item is not None:
            items = enumerate(self.sequence(value, path))
            blank = key.item()
            found = [replaced(blank, self.given(one, f"{path}[{index}]", key.item)) for index, one in items]
            return {key.field: tuple(found)}
        try:
            return {key.field: key.value(value)}
        except (ValueError, msgspec.ValidationError):
            self.refuse(path, value, key.accepted)
            return {}

    def selector(self, value: object, path: str) -> Selector:
        """A label selector. An absent or empty one is refused."""
        before = len(self.findings)
        body = self.named(value, path, ("matchLabels", "matchExpressions"))
        self.check_names(body, path, ("matchLabels", "matchExpressions"))
        labels = self.mapping(body.get("matchLabels"), f"{path}.matchLabels")
        expressions = enumerate(self.sequence(body.get("matchExpressions"), f"{path}.matchExpressions"))
        selector = Selector(
            match_labels=self._labels(labels, f"{path}.matchLabels"),
            match_expressions=tuple(self._requirement(one, f"{path}.matchExpressions[{i}]") for i, one in expressions),
        )
        if selector == Selector() and len(self.findings) == before:
            self.refuse(path, value, "a selector with matchLabels or matchExpressions")
        return selector if len(self.findings) == before else Selector()

    def _labels(self, labels: Mapping[str, object], path: str) -> dict[str, str]:
        return {
            self._matching(key, path, _LABEL_KEY, "a label's key"): self._matching(
                value, f'{path}["{key}"]', _LABEL_VALUE, "a label's value, as text"
            )
            for key, value in labels.items()
        }

    def _requirement(self, value: object, path: str) -> Requirement:
        body = self.named(value, path, ("key", "operator", "values"))
        operator = _OPERATORS.get(str(body.get("operator")))
        if operator is None:
            self.refuse(f"{path}.operator", body.get("operator"), " or ".join(f'"{name}"' for name in _OPERATORS))
            operator = "Exists"
        values = self.sequence(body.get("values"), f"{path}.values")
        if bool(values) != (operator in {"In", "NotIn"}):
            self.refuse(f"{path}.values", values, "values for In and NotIn, none for Exists and DoesNotExist")
        return Requirement(
            key=self._matching(body.get("key"), f"{path}.key", _LABEL_KEY, "a label's key"),
            operator=operator,
            values=tuple(
                self._matching(one, f"{path}.values[{i}]", _LABEL_VALUE, "a label's value, as text")
                for i, one in enumerate(values)
            ),
        )

    def _matching(self, value: object, path: str, pattern: re.Pattern[str], accepted: str) -> str:
        if isinstance(value, str) and len(value) <= LABEL_CHARS_MAX and pattern.fullmatch(value):
            return value
        self.refuse(path, value, accepted)
        return ""
