"""Formats records as lines, and resolves topic names."""

import base64
import binascii
import json
import re
from contextlib import suppress

import msgspec
import orjson

from slacktide.deploy.runtime.text import instant, printable
from slacktide.schemas import codec
from slacktide.schemas.dead_letter import DeadLetter, UnreadableBatch
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.sample_columns_codec import UnknownPodsError
from slacktide.schemas.text import similar
from slacktide.schemas.topics import BY_NAME, Topic
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader

_PREFIX = "slacktide."
_VERSION = re.compile(r"\.v\d+$")


class UnknownTopicError(SlacktideError):
    """The topic name is unknown or ambiguous."""


def topic_named(text: str) -> Topic:
    """Return a topic by its full or short name: ``slacktide.node.sample.v2``, ``node.sample.v2``, ``sample``.

    Without a version the newest is used; ``outcome`` means that of nodes.

    Raises:
        UnknownTopicError: the name is unknown or ambiguous; the message has suggestions.
    """
    short = {_short(name): name for name in BY_NAME}
    meant = [
        name
        for name in BY_NAME
        if text in {name, name.removeprefix(_PREFIX), _short(name), _short(name).rpartition(".")[2]}
    ]
    if len(meant) > 1:
        meant = [name for name in meant if name.startswith("slacktide.node.")]
    if len(meant) == 1:
        return BY_NAME[meant[0]]
    near = similar(_VERSION.sub("", text.removeprefix(_PREFIX)), short, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(short)}"
    raise UnknownTopicError(f"no topic {text}; {hint}")


def _short(name: str) -> str:
    """Return the short name, without the version if it is the newest."""
    stem = _VERSION.sub("", name)
    newest = max([one for one in BY_NAME if _VERSION.sub("", one) == stem], default=name)
    return (stem if name == newest else name).removeprefix(_PREFIX)


def line(record: Record, topic: Topic) -> str:
    """Format one record on one line: time, partition:offset, key, headers if it has any, body."""
    if record.value is None:
        body = "null (deleted)"
    elif isinstance(record.value, UnreadableBatch):
        body = f"(offsets {record.value.first_offset} to {record.offset}: {printable(record.value.reason, keep='')})"
    else:
        try:
            codec.decode(record.value, topic.message)
            body = _text(record.value)
        except (BadMessageError, orjson.JSONDecodeError) as exc:
            body = f"({printable(str(exc), keep='')}) {_plain(record.value)}"
    return _line(record, body)


def _line(record: Record, body: str) -> str:
    headers = " ".join(f"{_plain(name.encode())}={_plain(value)}" for name, value in record.headers)
    key = "-" if record.key is None else _plain(record.key)
    parts = [instant(record.timestamp_ms), f"{record.partition}:{record.offset}", key]
    return " ".join([*parts, *([f"[{headers}]"] if headers else []), body])


def sample_lines(record: Record, topic: Topic, samples: SampleReader) -> str:
    """Return a sample: one line for its node, then one per pod, by name; a single line if its pod list is unknown.

    ``samples`` has read earlier records.
    """
    try:
        sample = samples.read(record)
    except BadMessageError:
        return line(record, topic)
    names = samples.names(record)
    lines = [_line(record, _text(codec.encode(msgspec.structs.replace(sample, pod_use=[], pods=None, facts=None))))]
    for use in sample.pod_use:
        body = orjson.loads(codec.encode(use))
        uid = body.pop("uid")
        lines.append(f"  {_plain(names.get(uid, uid).encode())} {orjson.dumps(body).decode()}")
    return "\n".join(lines)


def json_line(record: Record, samples: SampleReader | None = None) -> bytes:
    """Return a record as a JSON object on one line; ``samples``: has read earlier ones of the topic, if it has samples.

    A sample names its pods if their list is known.
    """
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "headers": {name: value.decode(errors="backslashreplace") for name, value in record.headers},
        "body": None,
    }
    if isinstance(record.value, UnreadableBatch):
        shown["error"] = f"offsets {record.value.first_offset} to {record.offset}: {record.value.reason}"
    elif record.value is not None:
        try:
            shown["body"] = orjson.loads(_named(record, samples))
        except (BadMessageError, orjson.JSONDecodeError) as exc:
            shown["error"] = str(exc)
    return orjson.dumps(shown)


def _named(record: Record, samples: SampleReader | None) -> bytes:
    """Check a record's body and return it, a sample by the names of its pods."""
    if samples is not None:
        with suppress(UnknownPodsError):
            return codec.encode(samples.read(record))
    codec.decode(record.value, BY_NAME[record.topic].message)
    return record.value or b""


def _text(value: bytes) -> str:
    body = orjson.loads(value)
    text = orjson.dumps(body).decode()
    return text if text.isprintable() else json.dumps(body, separators=(",", ":"))


def _plain(raw: bytes) -> str:
    """Format bytes as one line of text without control characters."""
    return printable(raw.decode(errors="backslashreplace"), keep="")


def dead_letter_row(record: Record) -> tuple[str, int, str, str, str, str]:
    """Return a dead letter as a row: time, offset, origin, key, reader, reason."""
    try:
        dead_letter = codec.decode(record.value, DeadLetter)
    except BadMessageError as exc:
        return instant(record.timestamp_ms), record.offset, "?", "?", "?", str(exc)
    origin = f"{_short(dead_letter.topic)} {dead_letter.partition}:{_offsets(dead_letter)}"
    texts = (origin, dead_letter.key or "-", dead_letter.reader, dead_letter.reason)
    origin, key, reader, reason = (printable(text, keep="") for text in texts)
    return instant(record.timestamp_ms), record.offset, origin, key, reader, reason


def dead_letter_text(record: Record) -> str:
    """Return a complete dead letter: origin, reason, headers, and the record as far as it was kept."""
    dead_letter = codec.decode(record.value, DeadLetter)
    value = None
    if dead_letter.value_base64 is not None:
        try:
            value = base64.b64decode(dead_letter.value_base64)
        except binascii.Error:
            value = dead_letter.value_base64.encode()
    if value is None:
        described = "null" if dead_letter.last_offset is None else "not stored: the batch cannot be read"
    else:
        kept = "" if len(value) == dead_letter.value_bytes else f", only the first {len(value)} stored"
        described = f"{dead_letter.value_bytes} bytes{kept}"
    fields = [
        f"offset   {record.offset}",
        f"from     {dead_letter.topic} {dead_letter.partition}:{_offsets(dead_letter)}",
        f"refused  {instant(dead_letter.refused_ms)} by {dead_letter.reader}",
        f"reason   {dead_letter.reason}",
        f"key      {'-' if dead_letter.key is None else dead_letter.key}",
        *(f"header   {name}={text}" for name, text in dead_letter.headers.items()),
        f"value    {described}",
    ]
    return "\n".join(printable(field, keep="") for field in fields) + ("" if value is None else f"\n{_plain(value)}")


def _offsets(dead_letter: DeadLetter) -> str:
    first, last = dead_letter.offset, dead_letter.last_offset
    return f"{first}" if last is None else f"{first}-{last}"
