"""Keeps outcomes until Kafka acknowledges them. Intents are written before the act."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from slacktide.agents.node.acts import ends_or_stops
from slacktide.agents.node.intents import Intents, Key, key_of
from slacktide.agents.node.spool_files import Segments, write_whole
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome

BYTES_MAX = 64 * 1024 * 1024
WINDOW = 256
"""The oldest waiting outcomes, kept in memory besides the disk."""
UNWRITTEN_MAX = 1_024
"""Outcomes kept in memory while the disk refuses writes."""


class Spool(Protocol):
    """Intents and outcomes of one node. Never raises and never blocks an act."""

    def intend(self, outcome: NodeOutcome) -> None:
        """Record an act before it happens, with its intended outcome."""

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged. It closes the intent with the same id, rule and target."""

    def interrupted(self) -> list[NodeOutcome]:
        """Intents without an outcome: acts that the last run began and did not finish."""

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """The oldest unacknowledged outcomes in order, each with its position."""

    def acknowledge(self, position: int) -> None:
        """Kafka has all outcomes up to and including this position."""


class MemorySpool:
    """A spool in memory, for simulated nodes."""

    def __init__(self) -> None:
        self._intents: dict[Key, NodeOutcome] = {}
        self._pending: deque[tuple[int, NodeOutcome]] = deque()
        self._position = 0

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents[key_of(outcome)] = outcome

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        self._intents.pop(key_of(outcome), None)
        self._position += 1
        self._pending.append((self._position, outcome))

    def interrupted(self) -> list[NodeOutcome]:
        """Intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """The oldest outcomes not yet acknowledged, in order."""
        return list(islice(self._pending, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        while self._pending and self._pending[0][0] <= position:
            self._pending.popleft()


class _Line(Message, frozen=True, kw_only=True):
    """A line of a segment: an outcome with its position, or the acknowledged position. The first line has both."""

    at: int = 0
    outcome: NodeOutcome | None = None
    acknowledged: int = 0


_decoder = msgspec.json.Decoder(_Line)
_gap_decoder = msgspec.json.Decoder(NodeOutcome)
_encoder = msgspec.json.Encoder()


class DiskSpool:
    """A spool in a folder, which one process uses at a time.

    A full spool merges new outcomes, except evictions, into one counted ``gap`` outcome. While the disk refuses
    writes, it keeps a bounded number in memory. Outcomes are delivered at least once.
    """

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes_each = max(1, bytes_max // 64)
        self._failures = 0
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._intents = Intents(folder / "intents.jsonl")
        self._segments = Segments(folder, self._bytes_each)
        self._torn = 0
        self._last = 0
        self._acknowledged = 0
        self._last_of: dict[int, int] = {}
        self._gap = self._read_gap()
        self._gap_on_disk = self._gap is not None
        # Outcomes are in three places, oldest first: the window, the segments after it, and those not yet on disk.
        self._window: deque[tuple[int, NodeOutcome]] = deque()
        self._unwritten: deque[tuple[int, NodeOutcome]] = deque()
        self._recover()
        self._read_to = self._acknowledged
        self._cursor = (0, 0)

    @property
    def bytes_used(self) -> int:
        """Bytes on disk."""
        return self._segments.bytes_used

    @property
    def waiting(self) -> int:
        """Unacknowledged outcomes; a gap counts as one."""
        return self._last - self._acknowledged + (self._gap is not None)

    @property
    def torn(self) -> int:
        """Lines cut short by a crash or a full disk."""
        return self._torn + self._segments.torn + self._intents.torn

    @property
    def failures(self) -> int:
        """Failed writes."""
        return self._failures + self._intents.failures

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents.begin(outcome)

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        if self._full() and not (ends_or_stops(outcome) and outcome.result != "refused"):
            self._merge(outcome)
        else:
            self._close_gap()
            self._keep(outcome)
        self._intents.end(key_of(outcome))

    def interrupted(self) -> list[NodeOutcome]:
        """Intents without an outcome."""
        return list(self._intents.open.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """The oldest outcomes not yet acknowledged, in order."""
        self._write()
        if self._acknowledged == self._last:
            self._close_gap()
        if len(self._window) < min(limit, WINDOW):
            self._read_on()
        return list(islice(self._window, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        position = min(position, self._read_to)
        if position <= self._acknowledged:
            return
        self._acknowledged = position
        for waiting in (self._window, self._unwritten):
            while waiting and waiting[0][0] <= position:
                waiting.popleft()
        self._append(_Line(acknowledged=position))
        if position == self._last and self._segments.bytes_used >= self._bytes_each:
            self._segments.close()  # the next line begins a new file, so that this one can be deleted
        self._forget()

    def close(self) -> None:
        """Close the files."""
        self._segments.close()
        self._intents.close()

    def _full(self) -> bool:
        return self._segments.bytes_used >= self._bytes_max or len(self._unwritten) >= UNWRITTEN_MAX

    def _keep(self, outcome: NodeOutcome) -> None:
        self._last += 1
        if self._read_to == self._last - 1 and len(self._window) < WINDOW:
            self._window.append((self._last, outcome))
            self._read_to = self._last
        self._unwritten.append((self._last, outcome))
        self._write()

    def _write(self) -> None:
        while self._unwritten:
            position, outcome = self._unwritten[0]
            if not self._append(_Line(at=position, outcome=outcome)):
                return
            self._last_of[self._segments.last] = position
            self._unwritten.popleft()
        if self._gap is None and self._gap_on_disk:
            self._remove_gap()

    def _append(self, line: _Line) -> bool:
        try:
            if not self._segments.room:
                header = _Line(at=self._last - len(self._unwritten), acknowledged=self._acknowledged)
                self._segments.begin(_encoder.encode(header) + b"\n")
            self._segments.append(_encoder.encode(line) + b"\n")
        except OSError:
            self._failures += 1
            return False
        return True

    def _read_on(self) -> None:
        """Fill the window with the next outcomes: from disk, then those not yet on disk."""
        for number in self._segments.numbers:
            if number < self._cursor[0]:
                continue
            offset = self._cursor[1] if number == self._cursor[0] else 0
            for after, raw in self._segments.read(number, offset):
                self._take(self._decoded(raw))
                self._cursor = (number, after)
                if len(self._window) >= WINDOW:
                    return
        for position, outcome in self._unwritten:
            if len(self._window) < WINDOW:
                self._take(_Line(at=position, outcome=outcome))

    def _take(self, line: _Line) -> None:
        if line.outcome is not None and line.at > self._read_to:
            self._window.append((line.at, line.outcome))
            self._read_to = line.at

    def _forget(self) -> None:
        """Delete the oldest files whose outcomes are all acknowledged."""
        for number in self._segments.numbers:
            in_use = number == self._segments.last and self._segments.in_use
            if in_use or self._last_of.get(number, 0) > self._acknowledged:
                return
            self._segments.drop(number)
            self._last_of.pop(number, None)

    def _merge(self, outcome: NodeOutcome) -> None:
        count = outcome.count + (self._gap.count if self._gap else 0)
        self._gap = msgspec.structs.replace(
            outcome,
            origin="agent",
            result="gap",
            reason="the spool was full",
            before=None,
            after=None,
            bound="",
            terms={},
            count=count,
        )
        try:
            write_whole(self._folder / "gap.json", _encoder.encode(self._gap))
            self._gap_on_disk = True
        except OSError:
            self._failures += 1

    def _close_gap(self) -> None:
        """Append the gap as an outcome. The next gap starts from zero."""
        gap, self._gap = self._gap, None
        if gap is not None:
            self._keep(gap)

    def _remove_gap(self) -> None:
        try:
            (self._folder / "gap.json").unlink(missing_ok=True)
            self._gap_on_disk = False
        except OSError:
            self._failures += 1

    def _read_gap(self) -> NodeOutcome | None:
        try:
            return _gap_decoder.decode((self._folder / "gap.json").read_bytes())
        except (OSError, msgspec.DecodeError):
            return None

    def _recover(self) -> None:
        """Read what the last run left."""
        for number in self._segments.numbers:
            for _, raw in self._segments.read(number):
                line = self._decoded(raw)
                self._last = max(self._last, line.at)
                self._acknowledged = max(self._acknowledged, line.acknowledged)
                if line.outcome is not None:
                    self._last_of[number] = line.at
                    self._found(line.outcome)
        self._last = max(self._last, self._acknowledged)
        if self._gap is not None:
            self._intents.open.pop(key_of(self._gap), None)
        self._intents.rewrite()

    def _found(self, outcome: NodeOutcome) -> None:
        """An outcome in a segment closes its intent, or the gap on disk."""
        self._intents.open.pop(key_of(outcome), None)
        if self._gap is not None and outcome.result == "gap" and key_of(outcome) == key_of(self._gap):
            self._gap = None

    def _decoded(self, raw: bytes) -> _Line:
        try:
            return _decoder.decode(raw)
        except msgspec.DecodeError:
            self._torn += 1
            return _Line()
