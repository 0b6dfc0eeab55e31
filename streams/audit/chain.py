"""Writes and verifies a file whose lines are chained by hashes. Pure.

Each line is a JSON object. It begins with its number and the hash of the line before. It ends with its own hash:
SHA-256 of all bytes before ``,"hash":``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

FORMAT = "slacktide-audit-1"
FAULTS_MAX = 1_000
"""Faults that are described; further ones are counted."""
BEGIN = "0" * 64
"""The hash before the first line."""
_LINE = re.compile(
    rb'(\{"number":([1-9][0-9]{0,17}),"previous":"([0-9a-f]{64})"(,.*)),"hash":"([0-9a-f]{64})"\}', re.DOTALL
)
_FIRST, _LAST = f',"format":"{FORMAT}"'.encode(), b',"end":true'


class Chain:
    """Writes lines."""

    def __init__(self) -> None:
        self.number = 0
        self.hash = BEGIN

    def line(self, **content: object) -> bytes:
        """Return the next line. The first has ``format``, the last ``end``. ``msgspec.Raw`` must have no newline."""
        self.number += 1
        text = msgspec.json.encode({"number": self.number, "previous": self.hash, **content})[:-1]
        self.hash = hashlib.sha256(text).hexdigest()
        return text + f',"hash":"{self.hash}"}}\n'.encode()

    def first(self, **content: object) -> bytes:
        """Return the line that begins a file."""
        return self.line(format=FORMAT, **content)

    def last(self) -> bytes:
        """Return the line that ends a file."""
        return self.line(end=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a line, counted from 1."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of a verification."""

    lines: int
    hash: str
    """The hash of the last line, which identifies the whole file."""
    faults: list[Fault]
    faults_count: int = 0


def verify(lines: Iterable[bytes]) -> Verified:
    """Recompute the chain.

    Args:
        lines: the file's lines, each with its newline.
    """
    check = _Check()
    for line in lines:
        check.take(line)
    return check.done()


class _Check:
    def __init__(self) -> None:
        self._at = 0
        """The line in the file."""
        self._number, self._hash = 0, BEGIN
        """Number and hash of the last good line. The next line must refer to them."""
        self._ended = False
        self._faults: list[Fault] = []
        self._count = 0

    def take(self, line: bytes) -> None:
        self._at += 1
        match = _LINE.fullmatch(line.removesuffix(b"\n"))
        if self._ended:
            self._fault("stands after the end of the export")
        elif match is None:
            self._fault("is not a line of an export: it was changed or inserted")
        elif not line.endswith(b"\n"):
            self._fault("was changed: its newline is missing")
            self._follow(match)
        elif hashlib.sha256(match[1]).hexdigest().encode() != match[5]:
            self._fault("was changed: its hash is not that of its content")
            self._follow(match)
        else:
            self._link(match)

    def done(self) -> Verified:
        if not self._at:
            self._fault("is missing: the file is empty", line=1)
        elif not self._ended:
            self._fault("is missing: the file has no line that ends an export", line=self._at + 1)
        return Verified(lines=self._at, hash=self._hash, faults=self._faults, faults_count=self._count)

    def _link(self, match: re.Match[bytes]) -> None:
        number, due = int(match[2]), self._number + 1
        if number > due:
            self._fault(f"is line {number} of the export, not {due}: what was before it was removed or moved")
        elif number < due:
            self._fault(f"is line {number} of the export, not {due}: it was inserted or moved")
        elif match[3].decode() != self._hash:
            self._fault("does not follow the line before it: one of them was changed, inserted or moved")
        elif (number == 1) != match[4].startswith(_FIRST):
            self._fault(f"is not what begins an export of the format {FORMAT}")
        self._follow(match)

    def _follow(self, match: re.Match[bytes]) -> None:
        """Continue from the line's own number and hash, so that one change gives one fault."""
        self._number, self._hash = int(match[2]), match[5].decode()
        self._ended = match[4] == _LAST

    def _fault(self, what: str, *, line: int = 0) -> None:
        self._count += 1
        if self._count <= FAULTS_MAX:
            self._faults.append(Fault(line=line or self._at, what=what))
