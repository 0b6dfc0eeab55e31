"""Where each workload stands, as decisions have it: who holds quota, or may."""

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
    """Which decisions count, in the order of their topic.

    A term begins where its epoch is the highest so far; of two that begin with one epoch the first has it. A reader
    that comes later takes the first record it sees of a higher epoch.
    """

    def __init__(self) -> None:
        self.epoch, self.turn, self.process = 0, 0, ""
        """Of the last decision that counts."""

    def counts(self, one: QueueDecision) -> bool:
        """Whether the next decision counts."""
        if one.epoch != self.epoch:
            return one.epoch > self.epoch
        return one.process == self.process and one.turn > self.turn

    def passed(self, one: QueueDecision) -> bool:
        """Take the next decision; whether it counts."""
        counts = self.counts(one)
        if counts:
            self.epoch, self.turn, self.process = one.epoch, one.turn, one.process
        return counts


class Ledger(Fence):
    """A fold of decisions in the order of their topic, upon the states that were published before."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, QueueState] = {}
        """By uid. A workload without one waits, and was not tried."""
        self.fair_sharing = False
        self.read = NOTHING_READ
        self.decided_ms = 0
        self.epoch_max = 0
        """The highest that was read."""

    def published(self, state: QueueState) -> None:
        """A state as its topic has it. The highest epoch and turn holds: a late decider may write after a new one."""
        known = self.states.get(state.uid)
        self.epoch_max = max(self.epoch_max, state.epoch)
        if known is None or (state.epoch, state.turn) >= (known.epoch, known.turn):
            self.states[state.uid] = state

    def copy(self) -> Ledger:
        """The same, to go on from."""
        same = Ledger()
        same.__dict__.update(self.__dict__, states=dict(self.states))
        return same

    def decided(self, one: QueueDecision) -> bool:
        """A decision; whether it counts."""
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
        """A workload stands elsewhere by the decision that is next."""
        known = self.states.get(state.uid)
        if known is not None and (known.epoch, known.turn) > (state.epoch, state.turn):
            return  # published by a later one
        if state.phase == "gone":
            self.states.pop(state.uid, None)
        else:
            self.states[state.uid] = state


def ledger_of(states: Iterable[Record], decisions: Iterable[Record]) -> Ledger:
    """What is known of workloads by the two topics; records that cannot be read are passed by.

    Args:
        states: of the topic of states.
        decisions: of the topic of decisions, at least from the first one on whose states were not all published.

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
    """The decision in a record; None: it is none, and counts for nobody."""
    return _read(record, QueueDecision) if record.topic == QUEUE_DECISION.name else None


def _read(record: Record, kind: type[T]) -> T | None:
    try:
        return decode(record.value, kind)
    except BadMessageError:
        return None
