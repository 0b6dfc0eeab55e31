"""Keeps outcomes until Kafka acknowledges them. Intents are written before the act."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from slacktide.agents.node.reporter import Key, ends_or_stops, key_of
from slacktide.agents.node.spool_database import Change, SpoolDatabase
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
        """Return the intents without an outcome: acts that the last run began and did not finish."""

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest unacknowledged outcomes in order, each with its position."""

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
        """Return the intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest outcomes not yet acknowledged, in order."""
        return list(islice(self._pending, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        _drop(self._pending, position)


class DiskSpool:
    """A spool in a folder, which one process uses at a time. Outcomes are delivered at least once.

    A full spool merges new outcomes, except evictions, into one counted ``gap``. While the disk refuses writes, it
    keeps a bounded number in memory.
    """

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._database = SpoolDatabase(folder)
        kept = self._database.read()
        self._intents = {key_of(one): one for one in kept.intents}
        self._gap = kept.gap
        self._last, self._acknowledged = kept.last, kept.first - 1
        # Outcomes are in three places, oldest first: the window, the database after it, and those not yet on disk.
        self._window: deque[tuple[int, NodeOutcome]] = deque()
        self._unwritten: deque[tuple[int, NodeOutcome]] = deque()
        self._read_to = self._acknowledged

    @property
    def bytes_used(self) -> int:
        """Bytes of the outcomes on disk."""
        return self._database.bytes_used

    @property
    def waiting(self) -> int:
        """Unacknowledged outcomes; a gap counts as one."""
        return self._last - self._acknowledged + (self._gap is not None)

    @property
    def torn(self) -> int:
        """Databases and records that could not be read."""
        return self._database.torn

    @property
    def failures(self) -> int:
        """Failed reads and writes."""
        return self._database.failures

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents[key_of(outcome)] = outcome
        self._store()

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        if self._full() and not (ends_or_stops(outcome) and outcome.result != "refused"):
            self._merge(outcome)
        else:
            self._close_gap()
            self._keep(outcome)
        self._intents.pop(key_of(outcome), None)
        self._store()

    def interrupted(self) -> list[NodeOutcome]:
        """Return the intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest outcomes not yet acknowledged, in order."""
        if self._acknowledged == self._last:
            self._close_gap()
        self._store()
        if len(self._window) < min(limit, WINDOW):
            self._read_on()
        return list(islice(self._window, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        position = min(position, self._read_to)
        if position > self._acknowledged:
            self._acknowledged = position
            _drop(self._window, position)
            _drop(self._unwritten, position)
            self._store()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _full(self) -> bool:
        return self._database.bytes_used >= self._bytes_max or len(self._unwritten) >= UNWRITTEN_MAX

    def _keep(self, outcome: NodeOutcome) -> None:
        self._last += 1
        if self._read_to == self._last - 1 and len(self._window) < WINDOW:
            self._window.append((self._last, outcome))
            self._read_to = self._last
        self._unwritten.append((self._last, outcome))

    def _store(self) -> None:
        """Bring the database to what memory holds. If that fails, the next call tries again."""
        if self._database.store(Change(self._acknowledged, self._unwritten, self._intents.values(), self._gap)):
            self._unwritten.clear()

    def _read_on(self) -> None:
        """Fill the window with the next outcomes: from disk, then those not yet on disk, which must not overtake it."""
        stored = self._database.outcomes(self._read_to, WINDOW - len(self._window))
        if stored is None and self._unwritten and self._unwritten[0][0] > self._read_to + 1:
            return
        self._take(stored or ())
        self._take(self._unwritten)

    def _take(self, found: Iterable[tuple[int, NodeOutcome | None]]) -> None:
        for position, outcome in found:
            if len(self._window) >= WINDOW:
                return
            # A position above the last is damage: to go on from it would hide the outcomes behind it.
            if self._read_to < position <= self._last:
                self._read_to = position
                if outcome is not None:
                    self._window.append((position, outcome))

    def _merge(self, outcome: NodeOutcome) -> None:
        self._gap = msgspec.structs.replace(
            outcome,
            origin="agent",
            result="gap",
            reason="the spool was full",
            before=None,
            after=None,
            bound="",
            terms={},
            count=outcome.count + (self._gap.count if self._gap else 0),
        )

    def _close_gap(self) -> None:
        """Append the gap as an outcome. The next gap starts from zero."""
        gap, self._gap = self._gap, None
        if gap is not None:
            self._keep(gap)


def _drop(waiting: deque[tuple[int, NodeOutcome]], position: int) -> None:
    while waiting and waiting[0][0] <= position:
        waiting.popleft()
