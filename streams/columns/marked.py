"""Templates of records: a message is encoded once with marks in it, then only texts and numbers are filled in.

So a filled template has the very bytes that the codec writes, and no field is named twice in the code. Texts, which
are a node's, are filled in first, and give a template of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

FIRST: Final = 7_000_000_001
"""The first mark of a number. Ten digits, so that it stands in an id as it does in a field."""
_BEGIN: Final = b"70000"
_DIGITS: Final = 10


class MarksError(ValueError):
    """The text of a message looks like a mark: it makes no template."""


def mark(number: int) -> str:
    """Give the mark of a text. No name, id or revision holds such a character."""
    return f"\x7f{number}\x7f"


def text(value: str) -> bytes:
    """Write a text as it is filled in: as JSON, safe for a template of numbers."""
    return escaped(msgspec.json.encode(value))


def escaped(raw: bytes) -> bytes:
    """Make bytes safe for a template of numbers."""
    return raw.replace(b"%", b"%%")


def template(raw: bytes, texts: Sequence[bytes], numbers: int, *, again: int | None = None) -> bytes:
    """Return a template of texts, which gives one of numbers.

    Args:
        raw: an encoded message with marks.
        texts: what is replaced by ``%b``, in the order in which it stands there; each once.
        numbers: how many number marks stand there, in the order of the fields.
        again: the one that stands there more than once.

    Raises:
        MarksError: something else stands there.

    """
    pieces: list[bytes] = []
    found: list[int] = []
    rest = raw
    for one in texts:
        before, there, rest = rest.partition(one)
        if not there:
            raise MarksError(raw.decode(errors="replace"))
        pieces += _numbers(before, found, numbers), b"%b"
    pieces.append(_numbers(rest, found, numbers))
    once = [one for place, one in enumerate(found) if one != again or one not in found[:place]]
    if once != list(range(numbers)):
        raise MarksError(raw.decode(errors="replace"))
    return b"".join(pieces)


def _numbers(raw: bytes, found: list[int], count: int) -> bytes:
    """Put ``%%d`` in place of each mark, and ``%%010d`` at the end of an id, behind a ``-``."""
    pieces: list[bytes] = []
    begin = 0
    raw = raw.replace(b"%", b"%%%%")
    at = raw.find(_BEGIN)
    while at >= 0:
        digits = raw[at : at + _DIGITS]
        if not digits.isdigit() or not 0 <= (number := int(digits) - FIRST) < count:
            at = raw.find(_BEGIN, at + 1)
            continue
        found.append(number)
        pieces += raw[begin:at], b"%%010d" if raw[at - 1 : at] == b"-" else b"%%d"
        begin = at + _DIGITS
        at = raw.find(_BEGIN, begin)
    return b"".join((*pieces, raw[begin:]))
