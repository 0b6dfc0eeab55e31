"""Removes samples that failed the node proof. A replay has no keys, so the recorded answers show which."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.command import Origin
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.topics import COMMAND
from slacktide.streams.records import Place, Record
from slacktide.streams.rows import SAMPLE_NAMES

WAIT_MS = 30_000
"""A sample without an answer for this long counts as valid: a takeover takes less."""
_REQUIRED = b'"node_proof":"required"'


class _Answered(msgspec.Struct, frozen=True):
    sample: Origin | None = None
    proof: Verdict = ""


_answered = msgspec.json.Decoder(_Answered)


@dataclass(slots=True)
class _Partition:
    """Answers of one partition."""

    answered_to: int = -1
    """Offset of the sample with the newest answer; earlier ones are answered, too."""
    last: int = -1
    refused: set[int] = field(default_factory=set)
    """Offsets of rejected samples that follow in the trace."""


class Proven:
    """Holds each sample back until its answer is read, and drops it if the answer rejects its proof.

    Args:
        policies: of the trace; without required proofs nothing is held back.
        sink: receives the remaining records, in order.
    """

    def __init__(self, policies: Iterable[Record], sink: Callable[[Record], None]) -> None:
        self.dropped = 0
        """Rejected samples."""
        self._sink = sink
        self._checks = any(_REQUIRED in (record.value or b"") for record in policies)
        self._waiting: deque[Record] = deque()
        self._partitions: dict[Place, _Partition] = {}

    def take_all(self, records: Iterable[Record]) -> None:
        """Add the next records."""
        take = self.take if self._checks else self._sink
        for record in records:
            take(record)

    def take(self, record: Record) -> None:
        """Add the next record, of a trace with required proofs."""
        if record.topic == COMMAND.name:
            self._answer(record)
        self._waiting.append(record)
        self._release(record.timestamp_ms - WAIT_MS)

    def finish(self) -> None:
        """End of the trace."""
        self._release(None)

    def _answer(self, record: Record) -> None:
        try:
            answered = _answered.decode(record.value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if answered.sample is not None:
            partition = self._partition(Place(answered.sample.topic, answered.sample.partition))
            partition.answered_to = max(partition.answered_to, answered.sample.offset)
            if answered.proof not in PROVEN:
                partition.refused.add(answered.sample.offset)

    def _release(self, until_ms: int | None) -> None:
        """Release answered samples and those appended by that time; None: all."""
        while self._waiting:
            record = self._waiting[0]
            if record.topic in SAMPLE_NAMES:
                partition = self._partition(record.place)
                if record.offset <= partition.last:  # the topic was recreated
                    partition.answered_to = partition.last = -1
                late = until_ms is None or record.timestamp_ms < until_ms
                if record.offset > partition.answered_to and not late:
                    return
                partition.last = record.offset
            self._give(self._waiting.popleft())

    def _give(self, record: Record) -> None:
        if record.topic in SAMPLE_NAMES and record.offset in self._partition(record.place).refused:
            self._partition(record.place).refused.discard(record.offset)
            self.dropped += 1
        elif record.topic != COMMAND.name or not _refuses(record):
            self._sink(record)

    def _partition(self, place: Place) -> _Partition:
        return self._partitions.setdefault(place, _Partition())


def _refuses(record: Record) -> bool:
    try:
        return _answered.decode(record.value or b"").proof not in PROVEN
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
