"""Records as lines: which topic is meant, and how a record reads."""

from __future__ import annotations

import base64
import binascii
import difflib

import orjson

from slacktide.agents.kafka import Record
from slacktide.deploy.cli.text import instant
from slacktide.schemas import codec
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.errors import BadMessageError, SlacktideError
from slacktide.schemas.topics import BY_NAME, Topic


class UnknownTopicError(SlacktideError):
    """No topic of the table is meant."""


def topic_named(text: str) -> Topic:
    """The topic by its name or a short one: ``slacktide.node.sample.v1``, ``node.sample`` or ``sample``.

    Raises:
        UnknownTopicError: none or several are meant; the message names what is near.

    """
    short = {_short(name): name for name in BY_NAME}
    meant = [name for name in BY_NAME if text in {name, _short(name), _short(name).rpartition(".")[2]}]
    if len(meant) == 1:
        return BY_NAME[meant[0]]
    near = difflib.get_close_matches(text.removeprefix("slacktide.").removesuffix(".v1"), short, n=3, cutoff=0.4)
    raise UnknownTopicError(f"no topic {text}; known: {', '.join(near or short)}")


def _short(name: str) -> str:
    return name.removeprefix("slacktide.").removesuffix(".v1")


def line(record: Record, topic: Topic) -> str:
    """One record on one line: time, partition:offset, key, headers, body."""
    headers = " ".join(f"{_plain(name.encode())}={_plain(value)}" for name, value in record.headers)
    key = "-" if record.key is None else _plain(record.key)
    return f"{instant(record.timestamp_ms)} {record.partition}:{record.offset} {key} [{headers}] {_body(record, topic)}"


def _body(record: Record, topic: Topic) -> str:
    if record.value is None:
        return "null (deleted)"
    try:
        codec.decode(record.value, topic.message)
        return orjson.dumps(orjson.loads(record.value)).decode()
    except (BadMessageError, orjson.JSONDecodeError) as exc:
        return f"({exc}) {_plain(record.value)}"


def _plain(raw: bytes) -> str:
    """Bytes as text that cannot break a line nor steer a terminal."""
    text = raw.decode(errors="backslashreplace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def letter_row(record: Record) -> tuple[str, int, str, str, str, str]:
    """One dead letter as a row: time, offset, where from, key, reader, reason."""
    try:
        letter = codec.decode(record.value, DeadLetter)
    except BadMessageError as exc:
        return instant(record.timestamp_ms), record.offset, "?", "?", "?", str(exc)
    origin = f"{_short(letter.topic)} {letter.partition}:{letter.offset}"
    texts = (origin, letter.key or "-", letter.reader, letter.reason)
    origin, key, reader, reason = (_plain(text.encode()) for text in texts)
    return instant(record.timestamp_ms), record.offset, origin, key, reader, reason


def letter_text(record: Record) -> str:
    """One dead letter whole: where from, why, headers, and the record itself as far as it was kept."""
    letter = codec.decode(record.value, DeadLetter)
    value = _value(letter)
    kept = "" if value is None or len(value) == letter.value_bytes else f", the first {len(value)} kept"
    lines = [
        f"offset   {record.offset}",
        f"from     {letter.topic} {letter.partition}:{letter.offset}",
        f"refused  {instant(letter.refused_ms)} by {letter.reader}",
        f"reason   {_plain(letter.reason.encode())}",
        f"key      {'-' if letter.key is None else _plain(letter.key.encode())}",
        *(f"header   {_plain(name.encode())}={_plain(text.encode())}" for name, text in letter.headers.items()),
        f"value    {'null' if value is None else f'{letter.value_bytes} bytes{kept}'}",
    ]
    return "\n".join(lines) + ("" if value is None else f"\n{_plain(value)}")


def _value(letter: DeadLetter) -> bytes | None:
    if letter.value_base64 is None:
        return None
    try:
        return base64.b64decode(letter.value_base64)
    except binascii.Error:
        return letter.value_base64.encode()
