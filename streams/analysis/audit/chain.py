"""Writes and verifies a file whose lines are chained by hashes. Pure.

Each line is a JSON object. It begins with its number and the hash of the line before. It ends with its own hash:
SHA-256 of all bytes before ``,"hash":``.
"""

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
    """Recompute the chain of a file's lines, each with its newline."""
    found: list[Fault] = []
    at, faults_count = 0, 0
    number, previous, ended = 0, BEGIN, False
    for at, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line.removesuffix(b"\n"))
        if ended:
            fault = "stands after the end of the export"
        elif match is None:
            fault = "is not a line of an export: it was changed or inserted"
        elif not line.endswith(b"\n"):
            fault = "was changed: its newline is missing"
        elif hashlib.sha256(match[1]).hexdigest().encode() != match[5]:
            fault = "was changed: its hash is not that of its content"
        else:
            fault = _out_of_place(match, number + 1, previous)
        if match is not None and not ended:  # continue from the line's own values, so that one change gives one fault
            number, previous, ended = int(match[2]), match[5].decode(), match[4] == _LAST
        if fault:
            faults_count += 1
            if faults_count <= FAULTS_MAX:
                found.append(Fault(line=at, what=fault))
    if not ended:
        faults_count += 1
        lacks = "the file has no line that ends an export" if at else "the file is empty"
        if faults_count <= FAULTS_MAX:
            found.append(Fault(line=at + 1, what=f"is missing: {lacks}"))
    return Verified(lines=at, hash=previous, faults=found, faults_count=faults_count)


def _out_of_place(match: re.Match[bytes], due: int, previous: str) -> str:
    """Return why a line with a correct hash does not follow the one before; "": it does."""
    number = int(match[2])
    if number > due:
        return f"is line {number} of the export, not {due}: what was before it was removed or moved"
    if number < due:
        return f"is line {number} of the export, not {due}: it was inserted or moved"
    if match[3].decode() != previous:
        return "does not follow the line before it: one of them was changed, inserted or moved"
    if (number == 1) != match[4].startswith(_FIRST):
        return f"is not what begins an export of the format {FORMAT}"
    return ""
