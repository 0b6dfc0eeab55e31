"""Reads text that somebody else wrote: annotations and labels of users, answers of servers, files of programs.

Whoever may create a pod chooses such text. Its length is checked before it is parsed, and whatever is wrong with it is
one error. So these are the only functions that parse JSON and whole numbers; ``units`` does quantities.
"""

import re
import reprlib
from collections.abc import Collection
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.errors import TextError

JSON_BYTES_MAX = 2**20
"""Of JSON within an object. A ConfigMap has at most 1 MiB, all annotations of an object 256 KiB."""
DEPTH_MAX = 64
"""Levels of JSON. Deeper ones would end in an error of the interpreter's stack, here or wherever the value goes."""
INTEGER_CHARS_MAX = 20
TIME_CHARS_MAX = 40
SHOWN_CHARS_MAX = 60
OBJECT_BYTES_MAX = 2 * 2**20
"""Of an object that a user creates: etcd stores at most 1.5 MiB."""
TEXTS_MAX, PARTS_MAX, VALUES_MAX = 12_000, 10_000, 20_000
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one without an end, up to the end: what is tried once is not tried again from each quote in it."""
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
Raw = str | bytes | msgspec.Raw


def similar(name: str, known: Collection[str], *, count_max: int = 3, cutoff: float = 0.6) -> list[str]:
    """The known names that resemble one, the nearest first; ``cutoff``: the least resemblance, of 1."""
    from difflib import get_close_matches  # noqa: PLC0415 - every process has this module, and few need a suggestion

    return get_close_matches(name, list(known), count_max, cutoff)


def shown(text: object) -> str:
    """The beginning of a text, for a message."""
    if isinstance(text, int) and abs(text) >= 10**SHOWN_CHARS_MAX:
        return f"a number of {text.bit_length()} bits"
    if not isinstance(text, str | bytes):
        return reprlib.repr(text)
    return repr(text) if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]!r}..."


def json_of(text: Raw, kind: Any, *, where: str) -> Any:
    """Read JSON within an object: at most 1 MiB, and 64 levels.

    Raises:
        TextError: too long, nested too deep, no JSON, or of another shape.
    """
    raw = _bytes(text, where)
    if len(raw) > JSON_BYTES_MAX:
        raise TextError(where, f"JSON of {len(raw)} bytes; accepted: at most {JSON_BYTES_MAX}")
    found = _decoded(raw, kind, where)
    if _is_deep(raw):
        raise TextError(where, f"JSON nested deeper than {DEPTH_MAX} levels")
    return found


def answer_of(body: Raw, kind: Any, *, where: str, strict: bool = True) -> Any:
    """Read a server's whole answer or object, whose size its reader has bounded.

    What is nested too deep for the interpreter counts as null: it is in a field that nobody reads, and one object may
    not hide the others.

    Raises:
        TextError: no JSON, or of another shape.
    """
    raw = _bytes(body, where)
    try:
        return _decoder(kind, strict).decode(raw)
    except RecursionError:
        return _decoded(_pruned(raw), kind, where, strict=strict)
    except ValueError as exc:
        raise TextError(where, str(exc)) from exc


def integer_of(text: str | bytes, *, where: str, least: int = -INT64_MAX - 1, most: int = INT64_MAX) -> int:
    """Read a whole number in ASCII digits.

    Raises:
        TextError: not a whole number, or out of the range.
    """
    found = text.decode("ascii", errors="replace") if isinstance(text, bytes) else text
    if len(found) <= INTEGER_CHARS_MAX and _INTEGER.fullmatch(found) and least <= (number := int(found)) <= most:
        return number
    raise TextError(where, f"{shown(found)}; accepted: a whole number from {least} to {most}")


def time_ms_of(text: str, *, where: str) -> int:
    """Read a time such as ``2026-03-01T12:00:00Z`` in milliseconds of the UTC epoch; without an offset it is UTC.

    Raises:
        TextError: not a time.
    """
    try:
        when = datetime.fromisoformat(text[:TIME_CHARS_MAX])
        return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError) as exc:
        raise TextError(where, f"{shown(text)}; accepted: a time such as 2026-03-01T12:00:00Z") from exc


def time_text(time_ms: int) -> str:
    """Format a time of the UTC epoch in whole seconds, as Kubernetes does, such as ``2026-03-01T12:00:00Z``."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).isoformat().replace("+00:00", "Z")


@cache
def _decoder(kind: Any, strict: bool) -> msgspec.json.Decoder[Any]:  # noqa: FBT001
    return msgspec.json.Decoder(kind, strict=strict)


def _bytes(text: Raw, where: str) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as exc:
        raise TextError(where, f"no UTF-8: {exc.reason}") from exc


def _decoded(raw: bytes, kind: Any, where: str, *, strict: bool = True) -> Any:
    try:
        return _decoder(kind, strict).decode(raw)
    except RecursionError as exc:
        raise TextError(where, f"JSON nested deeper than {DEPTH_MAX} levels") from exc
    except ValueError as exc:
        raise TextError(where, str(exc)) from exc


def excess_of(body: bytes) -> str:
    """Return why nobody has the time to read a user's object at once; "": it is fine.

    A count at the speed of memory: at most 2 MiB, 12,000 texts, 20,000 values, 10,000 lists and objects, and 64 levels.
    """
    if len(body) > OBJECT_BYTES_MAX:
        return f"more than {OBJECT_BYTES_MAX} bytes"
    if (texts := (body.count(b'"') - body.count(b'\\"')) // 2) > TEXTS_MAX:
        return f"{texts} keys and texts; accepted: at most {TEXTS_MAX}"
    bare = _STRING.sub(b"", body)
    if (values := bare.count(b",")) > VALUES_MAX:
        return f"{values} values; accepted: at most {VALUES_MAX}"
    brackets = bare.translate(None, _NO_BRACKETS)
    if (parts := len(brackets) // 2) > PARTS_MAX:
        return f"{parts} lists and objects; accepted: at most {PARTS_MAX}"
    return f"nested deeper than {DEPTH_MAX} levels" if _is_deep(brackets) else ""


def _is_deep(raw: bytes) -> bool:
    """Takes pairs of brackets away, from the inside: a pass at the speed of memory takes at least one level."""
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return False
    left = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return bool(left)


def _pruned(raw: bytes) -> bytes:
    """The same JSON with null for what is nested too deep."""
    kept, depth, start = [], 0, 0
    for token in _TOKEN.finditer(raw):
        if token[0] in b"[{":
            depth += 1
            if depth == DEPTH_MAX:
                kept += [raw[start : token.start()], b"null"]
        elif token[0] in b"]}":
            if depth == DEPTH_MAX:
                start = token.end()
            depth -= 1
    return b"".join(kept) + raw[start:]
