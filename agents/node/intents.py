"""Intents: acts that have begun and are not yet reported, in a file that is mostly empty."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from slacktide.agents.node.spool_files import OPEN_FLAGS, whole_lines, write_line, write_whole
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome

Key = tuple[str, str, str]
LINES_MAX = 512
"""The file is rewritten after this many lines, so that closed intents do not stay in it."""


class _Line(Message, frozen=True, kw_only=True):
    intent: NodeOutcome | None = None
    concluded: Key | None = None


_decoder = msgspec.json.Decoder(_Line)
_encoder = msgspec.json.Encoder()


def key_of(outcome: NodeOutcome) -> Key:
    """The key that an intent and its outcome share."""
    return outcome.command_id, outcome.rule, outcome.target


class Intents:
    """Open intents, in memory and on disk. Never raises; failed writes are counted."""

    def __init__(self, path: Path) -> None:
        self.open: dict[Key, NodeOutcome] = {}
        self.torn = 0
        self.failures = 0
        self._path = path
        self._fd: int | None = None
        self._dirty = False
        self._lines = 0
        self._recover()

    def begin(self, outcome: NodeOutcome) -> None:
        """Record an act before it happens."""
        self.open[key_of(outcome)] = outcome
        self._write(_Line(intent=outcome))

    def end(self, key: Key) -> None:
        """Close an intent, since its outcome is in the spool."""
        if self.open.pop(key, None) is None:
            return
        if self.open:
            self._write(_Line(concluded=key))
        else:
            self._empty()

    def rewrite(self) -> None:
        """Rewrite the file with open intents only."""
        self.close()
        lines = [_encoder.encode(_Line(intent=outcome)) + b"\n" for outcome in self.open.values()]
        try:
            write_whole(self._path, b"".join(lines))
            self._dirty, self._lines = False, len(lines)
        except OSError:
            self.failures += 1
            self._dirty = True

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _recover(self) -> None:
        try:
            lines, self.torn = whole_lines(self._path.read_bytes())
        except FileNotFoundError:
            return
        except OSError:
            self.failures += 1
            return
        for raw in lines:
            try:
                line = _decoder.decode(raw)
            except msgspec.DecodeError:
                self.torn += 1
                continue
            if line.intent is not None:
                self.open[key_of(line.intent)] = line.intent
            if line.concluded is not None:
                self.open.pop(line.concluded, None)

    def _write(self, line: _Line) -> None:
        self._lines += 1
        if self._dirty or self._lines > LINES_MAX + len(self.open):
            self.rewrite()
            return
        try:
            if self._fd is None:
                self._fd = os.open(self._path, OPEN_FLAGS, 0o600)
            write_line(self._fd, _encoder.encode(line) + b"\n")
        except OSError:
            self.failures += 1
            self._dirty = True

    def _empty(self) -> None:
        if self._dirty or self._fd is None:
            self.rewrite()
            return
        try:
            os.ftruncate(self._fd, 0)
            self._lines = 0
        except OSError:
            self.failures += 1
            self._dirty = True
