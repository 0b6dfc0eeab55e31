"""Encodes and decodes records as JSON."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import BadMessageError

if TYPE_CHECKING:
    from slacktide.schemas.message import Message

M = TypeVar("M", bound="Message")
VALUE_CHARS_MAX = 80
MALFORMED = (ValueError, RecursionError)
"""What msgspec raises for text that is no JSON, of another shape, or nested beyond the stack."""
_encoder = msgspec.json.Encoder()
_PLACE = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_STEP = re.compile(r"\[\d+\]|\.[^.\[]+")


@cache
def _decoder(kind: type[M]) -> msgspec.json.Decoder[M]:
    return msgspec.json.Decoder(kind)


def encode(message: Message) -> bytes:
    """Write a message as compact JSON, fields in declared order, defaults left out."""
    return _encoder.encode(message)


def decode(raw: bytes | None, kind: type[M]) -> M:
    """Read a message; unknown fields are ignored.

    Raises:
        BadMessageError: no value, not JSON, or a field is absent or refused: its path, value and range are in the text.
    """
    if raw is None:
        raise BadMessageError(kind.__name__, "the value is null")
    try:
        message: M = _decoder(kind).decode(raw)
    except MALFORMED as exc:
        why = raw.reason if isinstance(raw, UnreadableBatch) else refusal(raw, exc)
        raise BadMessageError(kind.__name__, why) from exc
    return message


def refusal(raw: bytes, error: Exception) -> str:
    """Describe why a body was refused: the field's path and range, as msgspec gives them, and the value.

    Args:
        raw: the body, as JSON.
        error: what msgspec raised.
    """
    text = str(error)
    place = _PLACE.search(text)
    if place is None:
        return text
    try:
        value = msgspec.json.decode(raw)
        for step in _STEP.findall(place.group(1)):
            value = value[int(step[1:-1])] if step[0] == "[" else value[step[1:]]
    except (*MALFORMED, LookupError, TypeError):
        return text  # such as a map's key, which is not in the path
    return f"{text}: the value is {msgspec.json.encode(value)[:VALUE_CHARS_MAX].decode(errors='replace')}"
