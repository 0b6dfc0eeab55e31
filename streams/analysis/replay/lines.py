"""Reads and writes the format of ``slacktide topics export``: records as lines of JSON (docs/export-format.md).

The first line is a header. The last line has the number of records, so that a truncated file is rejected. Policies are
first. All others are in the order of time, those of one partition by offset.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from slacktide.schemas.bounds import Count
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.forecast import FORECAST_STALE_MS
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    FORECAST,
    INVENTORY,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLE,
    TICK,
)
from slacktide.streams.records import Record
from slacktide.streams.taken import Records, Taken

FORMAT = "slacktide topics export"
VERSION = 1
BASE64 = "base64"
BLOCK = 512
"""Lines read at once."""
BLOCK_BYTES = 16 << 20
"""Fewer are read at once if they are long."""
NULL = msgspec.Raw(b"null")
REPLAYED = tuple(
    topic.name for topic in (POLICY, INVENTORY, FORECAST, TICK, SAMPLE, COMMAND, METRIC, ALLOCATABLE, OUTCOME, CREDIT)
)
"""Topics that a replay needs, in the order of reading within a millisecond: causes first."""
STATE = frozenset({POLICY.name, INVENTORY.name})
"""These topics are read completely: a worker needs them before it answers."""


SOONER_MS = {FORECAST.name: FORECAST_STALE_MS}
"""The time before the span for which records are needed, by topic."""


class TraceError(SlacktideError):
    """A line of a file is invalid or misplaced."""

    def __init__(self, file: str, line: int, why: str) -> None:
        self.line = line
        super().__init__(f"{file}, line {line}: {why}")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = FORMAT
    version: int = VERSION
    since_ms: Count = 0
    """Start of the span; earlier samples serve as history, as at a takeover."""
    until_ms: Count
    """End of the span, exclusive."""
    topics: Sequence[str] = ()


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    records: Count


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    topic: str
    partition: Count
    offset: Count
    timestamp_ms: int
    key: str | None = None
    key_base64: str | None = None
    headers: tuple[tuple[str, ...], ...] = ()
    """Name and text; a third part marks base64."""
    body: msgspec.Raw = msgspec.Raw(b"")
    """The original bytes; null: a tombstone, or see the next field."""
    body_base64: str | None = None


class _Unheaded(msgspec.Struct, frozen=True, kw_only=True):
    """A line without headers, which a replay does not need."""

    topic: str
    partition: Count
    offset: Count
    timestamp_ms: int
    key: str | None = None
    key_base64: str | None = None
    body: msgspec.Raw
    body_base64: str | None = None


_encoder = msgspec.json.Encoder()
_header, _end = msgspec.json.Decoder(Header), msgspec.json.Decoder(_End)
_whole, _unheaded = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_Unheaded)
_valid = msgspec.json.Decoder(msgspec.Raw)


def head_line(header: Header) -> bytes:
    """Return the first line of a file."""
    return _encoder.encode(header) + b"\n"


def end_line(records: int) -> bytes:
    """Return the last line of a file."""
    return _encoder.encode(_End(records=records)) + b"\n"


def line_of(record: Record) -> bytes:
    """Return a record as a line."""
    key, value = record.key, record.value
    key_text = _text(key)
    verbatim = value is None or _is_json(value)
    line = _Line(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=key_text,
        key_base64=None if key is None or key_text is not None else b64encode(key).decode(),
        headers=tuple(_header_of(name, raw or b"") for name, raw in record.headers),
        body=msgspec.Raw(value) if verbatim and value is not None else NULL,
        body_base64=None if verbatim or value is None else b64encode(value).decode(),
    )
    return _encoder.encode(line) + b"\n"


def header_of(line: bytes, file: str) -> Header:
    """Parse the first line. Raises TraceError if it is not a header, or of a later version."""
    try:
        header = _header.decode(line)
    except MALFORMED as exc:
        raise TraceError(file, 1, f"not the header of a `slacktide topics export` file: {exc}") from exc
    if header.format != FORMAT:
        raise TraceError(file, 1, f"format is {header.format!r}, not {FORMAT!r}")
    if header.version != VERSION:
        raise TraceError(file, 1, f"version {header.version}; this slacktide reads version {VERSION}")
    return header


def records_of(
    lines: Iterable[bytes], file: str, *, headers: bool = False, topics: Iterable[str] = ()
) -> Iterator[Record]:
    """Yield the records after the header, in order: those of ``blocks_of``."""
    return chain.from_iterable(blocks_of(lines, file, headers=headers, topics=topics))


def blocks_of(
    lines: Iterable[bytes], file: str, *, headers: bool = False, topics: Iterable[str] = ()
) -> Iterator[Records]:
    """Yield the records after the header as columns, in order, some hundred at a time.

    ``lines``: the lines after the header. ``file``: its name, for errors. ``headers``: whether to read record headers.
    ``topics``: topics named in the header; empty: any. Raises TraceError if a line is invalid or misplaced, or the last
    line is missing.
    """
    decode = _whole.decode if headers else _unheaded.decode
    expected, begun, number, lines = frozenset(topics), False, 1, iter(lines)
    while some := _some(lines):
        block, error = _block(some, decode)
        for at, topic in enumerate(block.topics):
            if expected and topic not in expected:
                raise TraceError(file, number + 1 + at, f"topic {topic!r} is none of those that the first line names")
            if begun and topic == POLICY.name:
                why = "a policy behind other records: all policies come first"
                raise TraceError(file, number + 1 + at, why)
            begun = begun or topic != POLICY.name
        yield block
        number += len(block)
        if error is not None:
            number += 1
            _check_end(some[len(block)], file, number, error)
            if len(block) + 1 < len(some) or next(lines, None) is not None:
                raise TraceError(file, number + 1, "comes after the last line")
            return
    raise TraceError(file, number, "the last line is missing: the file was cut short")


def _some(lines: Iterator[bytes]) -> Sequence[bytes]:
    """Return the next lines, of bounded size together."""
    some, size_bytes = list[bytes](), 0
    for line in lines:
        some.append(line)
        size_bytes += len(line)
        if len(some) == BLOCK or size_bytes >= BLOCK_BYTES:
            break
    return some


def _block(lines: Sequence[bytes], decode: Callable[[bytes], _Line | _Unheaded]) -> tuple[Records, Exception | None]:
    """Return the records up to the first line that is none, and why it is none."""
    found: list[_Line | _Unheaded] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    error: Exception | None = None
    try:
        for raw in lines:
            line = decode(raw)
            key = None if line.key is None else line.key.encode()
            if line.key_base64 is not None:
                key = b64decode(line.key_base64, validate=True)
            value = None if line.body == NULL else bytes(line.body)
            if line.body_base64 is not None:
                value = b64decode(line.body_base64, validate=True)
            keys.append(key)
            values.append(value)
            found.append(line)
    except MALFORMED as exc:
        error = exc
    taken = Taken(
        [one.offset for one in found],
        [one.timestamp_ms for one in found],
        keys,
        values,
        [() if isinstance(one, _Unheaded) else tuple(map(_header_pair, one.headers)) for one in found],
    )
    return Records([one.topic for one in found], [one.partition for one in found], taken), error


def _check_end(raw: bytes, file: str, number: int, error: Exception) -> None:
    """Raise unless the line that is no record is the last one."""
    try:
        count = _end.decode(raw).records
    except MALFORMED:
        raise TraceError(file, number, f"not a record: {error}") from error
    if count != number - 2:
        raise TraceError(file, number, f"the file was written with {count} records, {number - 2} are here") from error


def _is_json(value: bytes) -> bool:
    """Return whether the bytes can be embedded unchanged."""
    if not value or value == b"null" or value[:1].isspace() or value[-1:].isspace() or b"\n" in value or b"\r" in value:
        return False
    try:
        value.decode()
        _valid.decode(value)
    except MALFORMED:
        return False
    return True


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _header_of(name: str, raw: bytes) -> tuple[str, ...]:
    text = _text(raw)
    return (name, b64encode(raw).decode(), BASE64) if text is None else (name, text)


def _header_pair(parts: Sequence[str]) -> tuple[str, bytes]:
    name, text, *how = parts
    return name, b64decode(text, validate=True) if how else text.encode()
