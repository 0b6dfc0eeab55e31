"""A line of an export for each record. Pure."""

from __future__ import annotations

import base64

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.unreadable import UnreadableBatch
from slacktide.streams.records import Record


def content_of(record: Record) -> dict[str, object]:
    """Return the record's place, the broker's time, and the body: a NodeOutcome on one line unchanged, else base64."""
    place: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "appended_ms": record.timestamp_ms,
    }
    value = record.value
    if isinstance(value, UnreadableBatch):
        return place | {"unreadable": value.reason, "first_offset": value.first_offset}
    if value is None:
        return place | {"body": None}
    try:
        decode(value, NodeOutcome)
    except BadMessageError:
        return place | {"value_base64": base64.b64encode(value).decode()}
    if b"\n" in value or b"\r" in value:
        return place | {"value_base64": base64.b64encode(value).decode()}
    return place | {"body": msgspec.Raw(value)}
