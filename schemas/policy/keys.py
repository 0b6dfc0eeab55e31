"""What each key of the ConfigMap accepts.

The ranges are the fields' types: they stand in one place, where the strategies are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.message import Message
from slacktide.schemas.policy.names import NAMES
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold

NARROWER: Mapping[tuple[type[Message], str], tuple[str, ...]] = {
    # By request is memory's alone; the reference takes what it does not know for the default, without a word.
    (Colocation, "cpu_calculate_policy"): ("usage", "maxUsageRequest"),
    (ResourceThreshold, "cpu_evict_policy"): ("evictByRealLimit", "evictByAllocatable"),
}
"""Fields of a wider type: the texts that the ConfigMap may have there."""
DURATIONS = r"([0-9]+(\.[0-9]+)?(h|m|s|ms))+"
DURATION_CHARS_MAX = 40
_DURATION = re.compile(DURATIONS)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)", re.ASCII)
_UNIT_S = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One name in the ConfigMap."""

    field: str
    part: type[Message] | None
    """The struct of its value, if it is one."""
    item: type[Message] | None
    """The struct of its items, if it is a list."""
    accepted: str
    """What it accepts, in words."""
    value: Callable[[object], object]
    """Converts the value. Raises ValueError if it is not accepted."""


@cache
def keys_of(kind: type[Message]) -> Mapping[str, Key]:
    """The struct's keys by name."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: _key(kind, field, types[field]) for name, field in NAMES[kind].items()}


def _key(kind: type[Message], field: str, of: Any) -> Key:
    item = _struct(get_args(of)[0]) if get_origin(of) is tuple else None
    accepted, value = _accepted(inspect.type_info(of)), _converted(of)
    texts = NARROWER.get((kind, field)) or (get_args(of) if get_origin(of) is Literal else ())
    if texts:
        accepted, value = " or ".join(f'"{text}"' for text in texts), _one_of(texts)
    elif field == "durations_s":
        accepted, value = "a list of durations such as 5m or 1h30m, 1s or more each", _durations
    return Key(field=field, part=_struct(of), item=item, accepted=accepted, value=value)


def _struct(of: Any) -> type[Message] | None:
    return of if isinstance(of, type) and issubclass(of, Message) else None


def _converted(of: Any) -> Callable[[object], object]:
    def value(given: object) -> object:
        return msgspec.convert(given, of)

    return value


def _one_of(texts: tuple[str, ...]) -> Callable[[object], object]:
    def value(given: object) -> object:
        if given not in texts:
            raise ValueError
        return given

    return value


def _durations(given: object) -> object:
    if not isinstance(given, list) or not given:
        raise ValueError
    return tuple(seconds_of(text) for text in given)


def seconds_of(text: object) -> int:
    """Whole seconds of a duration such as ``5m0s``, above 0. Raises ValueError if it is none."""
    if not isinstance(text, str) or len(text) > DURATION_CHARS_MAX or not _DURATION.fullmatch(text):
        raise ValueError("not a duration such as 5m")
    seconds = int(sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN.findall(text)))
    if not 0 < seconds <= INT32_MAX:
        raise ValueError("not a duration above 0")
    return seconds


def _accepted(info: inspect.Type) -> str:
    words = _WORDS.get(type(info))
    return "a JSON object" if words is None else words(info)


def _whole(info: inspect.IntType) -> str:
    return f"a whole number from {info.ge} to {info.le}"


def _any_of(info: inspect.UnionType) -> str:
    return ", or ".join(_accepted(one) for one in info.types if not isinstance(one, inspect.NoneType))


_WORDS: Mapping[type[inspect.Type], Callable[[Any], str]] = {
    inspect.BoolType: lambda _: "true or false",
    inspect.IntType: _whole,
    inspect.FloatType: lambda info: f"a number above {info.gt:g}, up to {info.le:g}",
    inspect.StrType: lambda info: "a quantity such as 50M" if info.pattern else "a text",
    inspect.UnionType: _any_of,
    inspect.VarTupleType: lambda _: "a list",
}
