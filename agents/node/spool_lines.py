"""Reads the spool of versions up to 0.2: numbered segments of JSON lines, open intents, and the gap.

A line is complete with its newline. Incomplete lines are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from slacktide.agents.node.acts import Key, key_of
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome

SEGMENTS, INTENTS, GAP = "[0-9]*.jsonl", "intents.jsonl", "gap.json"
T = TypeVar("T")


class _Line(Message, frozen=True, kw_only=True):
    """Of a segment: an outcome with its position, or the acknowledged position. The first line has both."""

    at: int = 0
    outcome: NodeOutcome | None = None
    acknowledged: int = 0


class _Intent(Message, frozen=True, kw_only=True):
    intent: NodeOutcome | None = None
    concluded: Key | None = None


@dataclass(slots=True)
class Lines:
    """What the files hold."""

    outcomes: list[NodeOutcome] = field(default_factory=list)
    """Unacknowledged, in order; the gap comes last."""
    intents: list[NodeOutcome] = field(default_factory=list)
    torn: int = 0
    files: list[Path] = field(default_factory=list)

    def decoded(self, file: Path, kind: type[T], *, end: bytes = b"\n") -> Iterator[T]:
        """Valid lines of a file."""
        try:
            raw = file.read_bytes().splitlines(keepends=True)
        except OSError:
            self.torn += 1
            return
        for line in raw:
            try:
                found = msgspec.json.decode(line, type=kind) if line.endswith(end) else None
            except msgspec.DecodeError:
                found = None
            if found is None:
                self.torn += 1
            else:
                yield found

    def delete(self) -> None:
        """Delete the files."""
        for file in self.files:
            with suppress(OSError):
                file.unlink()


def read_lines(folder: Path) -> Lines:
    """Read all files. What cannot be read is counted."""
    segments, intents, gaps = sorted(folder.glob(SEGMENTS)), list(folder.glob(INTENTS)), list(folder.glob(GAP))
    lines = Lines(files=[*segments, *intents, *gaps])
    logged = [one for file in segments for one in lines.decoded(file, _Line)]
    acknowledged = max((one.acknowledged for one in logged), default=0)
    outcomes = {one.at: one.outcome for one in logged if one.outcome is not None}
    lines.outcomes = [outcomes[at] for at in sorted(outcomes) if at > acknowledged]
    lines.outcomes += [one for file in gaps for one in lines.decoded(file, NodeOutcome, end=b"")]
    ended = {key_of(one) for one in (*outcomes.values(), *lines.outcomes)}
    began: dict[Key, NodeOutcome] = {}
    for one in [one for file in intents for one in lines.decoded(file, _Intent)]:
        if one.intent is not None:
            began[key_of(one.intent)] = one.intent
        if one.concluded is not None:
            began.pop(one.concluded, None)
    lines.intents = [intent for key, intent in began.items() if key not in ended]
    return lines
