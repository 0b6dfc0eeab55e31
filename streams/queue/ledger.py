"""The state of each workload by decisions, including which may hold quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.queue import QueueDecision, QueueRead, QueueState
from slacktide.schemas.topics import QUEUE_DECISION
from slacktide.streams.records import Record

T = TypeVar("T", QueueState, QueueDecision)
NOTHING_READ = QueueRead(spec=0, workload=0, outcome=0)


class Fence:
    """Decides which decisions count, in topic order.

    A term begins with a higher epoch. If two have the same epoch, the first one counts. A late reader accepts the first
    record of a higher epoch.
    """

    def __init__(self) -> None:
        self.epoch, self.turn, self.process = 0, 0, ""
        """Of the last decision that counts."""

    def counts(self, one: QueueDecision) -> bool:
        """Return whether the next decision counts."""
        if one.epoch != self.epoch:
            return one.epoch > self.epoch
        return one.process == self.process and one.turn > self.turn

    def passed(self, one: QueueDecision) -> bool:
        """Process the next decision; return whether it counts."""
        counts = self.counts(one)
        if counts:
            self.epoch, self.turn, self.process = one.epoch, one.turn, one.process
        return counts


class Ledger(Fence):
    """A fold of decisions in topic order, on top of published states."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, QueueState] = {}
        """By uid. A workload without a state is pending and was never tried."""
        self.fair_sharing = False
        self.read = NOTHING_READ
        self.decided_ms = 0
        self.epoch_max = 0

    def published(self, state: QueueState) -> None:
        """Add a published state. The highest epoch and turn wins, since a former leader may write late."""
        known = self.states.get(state.uid)
        self.epoch_max = max(self.epoch_max, state.epoch)
        if known is None or (state.epoch, state.turn) >= (known.epoch, known.turn):
            self.states[state.uid] = state

    def copy(self) -> Ledger:
        """Return a copy for further changes."""
        same = Ledger()
        same.__dict__.update(self.__dict__, states=dict(self.states))
        return same

    def decided(self, one: QueueDecision) -> bool:
        """Add a decision; return whether it counts."""
        self.epoch_max = max(self.epoch_max, one.epoch)
        if not self.passed(one):
            return False
        self.fair_sharing = one.fair_sharing
        self.decided_ms = max(self.decided_ms, one.decided_ms)
        self.read = one.read
        for state in one.changes:
            self.change(state)
        return True

    def change(self, state: QueueState) -> None:
        """Change a workload by the next decision."""
        known = self.states.get(state.uid)
        if known is not None and (known.epoch, known.turn) > (state.epoch, state.turn):
            return  # a later one was published
        if state.phase == "gone":
            self.states.pop(state.uid, None)
        else:
            self.states[state.uid] = state


def ledger_of(states: Iterable[Record], decisions: Iterable[Record]) -> Ledger:
    """Build the ledger from both topics; skip invalid records.

    ``decisions`` must include the first with unpublished states.
    """
    ledger = Ledger()
    for record in states:
        if record.value is None:
            ledger.states.pop((record.key or b"").decode(errors="replace"), None)
        elif (state := _read(record, QueueState)) is not None:
            ledger.published(state)
    for record in decisions:
        if (one := decision_of(record)) is not None:
            ledger.decided(one)
    return ledger


def decision_of(record: Record) -> QueueDecision | None:
    """Decode a decision; return None if it is invalid. An invalid decision never counts."""
    return _read(record, QueueDecision) if record.topic == QUEUE_DECISION.name else None


def _read(record: Record, kind: type[T]) -> T | None:
    try:
        return decode(record.value, kind)
    except BadMessageError:
        return None
