"""Decodes the queue's records, and folds decisions to the state of each workload, including which may hold quota."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.queue import (
    QueueDecision,
    QueueOutcome,
    QueueRead,
    QueueSpec,
    QueueState,
    QueueWorkload,
    spec_key,
)
from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.records import Record, text_of

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


class Inputs(NamedTuple):
    """New records by topic, in order."""

    specs: list[Record]
    workloads: list[Record]
    outcomes: list[Record]


def inputs_of(records: Iterable[Record]) -> Inputs:
    """Group records by topic; skip other topics."""
    found = Inputs([], [], [])
    into = {QUEUE_SPEC.name: found.specs, QUEUE_WORKLOAD.name: found.workloads, QUEUE_OUTCOME.name: found.outcomes}
    for record in records:
        if record.topic in into:
            into[record.topic].append(record)
    return found


def read_up_to(inputs: Inputs, before: QueueRead) -> QueueRead:
    """Return the read positions after these records."""
    spec, workload, outcome = (records[-1].offset + 1 if records else 0 for records in inputs)
    return QueueRead(
        spec=max(before.spec, spec), workload=max(before.workload, workload), outcome=max(before.outcome, outcome)
    )


def last_of_each(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each key by offset, as after compaction."""
    found: dict[tuple[str, bytes | None], Record] = {}
    for record in records:
        found.pop((record.topic, record.key), None)
        found[record.topic, record.key] = record
    return list(found.values())


def object_of(record: Record) -> QueueObject:
    """Decode a queue object; raise BadMessageError if it is not exactly one, or its key names another."""
    objects = decode(record.value, QueueSpec).objects
    if len(objects) != 1:
        raise BadMessageError("QueueSpec", f"{len(objects)} objects; accepted: one")
    _check(record, spec_key(objects[0]), "QueueSpec")
    return objects[0]


def workload_of(record: Record) -> QueueWorkload:
    """Decode a workload; raise BadMessageError if it is invalid, or its key names another."""
    found = decode(record.value, QueueWorkload)
    _check(record, found.uid, "QueueWorkload")
    if found.workload.metadata.uid != found.uid:
        raise BadMessageError("QueueWorkload", f"metadata.uid is {found.workload.metadata.uid!r}, not {found.uid!r}")
    return found


def outcome_of(record: Record) -> QueueOutcome:
    """Decode an outcome of an admission; raise BadMessageError if it is invalid, or its key names another."""
    found = decode(record.value, QueueOutcome)
    _check(record, found.uid, "QueueOutcome")
    return found


def _check(record: Record, key: str, kind: str) -> None:
    if record.key != key.encode():
        raise BadMessageError(kind, f"the record's key is {text_of(record.key or b'')!r}, not {key!r}")
