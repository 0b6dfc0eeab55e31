"""Templates of records: a message is encoded once with marks, which texts and numbers then replace.

A filled template has the same bytes as the codec writes. Texts are filled in first, which yields a template of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

FIRST: Final = 7_000_000_001
"""The first mark of a number. Ten digits, because ids pad numbers to ten."""
_BEGIN: Final = b"70000"
_DIGITS: Final = 10


class MarksError(ValueError):
    """A text of the message looks like a mark, so that no template can be built."""


def mark(number: int) -> str:
    """Return the mark of a text. No name, id or revision contains this character."""
    return f"\x7f{number}\x7f"


def text(value: str) -> bytes:
    """Encode a text as JSON and escape it for a template of numbers."""
    return escaped(msgspec.json.encode(value))


def escaped(raw: bytes) -> bytes:
    """Escape bytes for a template of numbers."""
    return raw.replace(b"%", b"%%")


def template(raw: bytes, texts: Sequence[bytes], numbers: int, *, again: int | None = None) -> bytes:
    """Return a template of texts, which yields a template of numbers.

    ``texts``: what ``%b`` replaces, in order; each occurs once. ``numbers``: how many number marks there are, in order
    of the fields. ``again``: the mark that occurs more than once.

    Raises:
        MarksError: the marks found are others.
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
    """Replace each mark by ``%%d``, or by ``%%010d`` behind the ``-`` of an id."""
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
