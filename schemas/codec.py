"""JSON on the wire: one way in, one way out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slacktide.schemas.errors import BadMessageError

if TYPE_CHECKING:
    from slacktide.schemas.message import Message

M = TypeVar("M", bound="Message")
_encoder = msgspec.json.Encoder()


@cache
def _decoder(kind: type[M]) -> msgspec.json.Decoder[M]:
    return msgspec.json.Decoder(kind)


def encode(message: Message) -> bytes:
    """Write a message as compact JSON, fields in declared order, defaults left out."""
    return _encoder.encode(message)


def decode(raw: bytes | None, kind: type[M]) -> M:
    """Read a message; unknown fields are ignored.

    Raises:
        BadMessageError: no value, not JSON, or a field is absent or refused (its path is in the text).

    """
    if raw is None:
        raise BadMessageError(kind.__name__, "the value is null")
    try:
        message: M = _decoder(kind).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadMessageError(kind.__name__, str(exc)) from exc
    return message
