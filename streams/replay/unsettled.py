"""Tracks times when the inputs of worker and replay may differ, and removes samples without a valid node proof."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.command import NodeCommand, Origin
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import COMMAND, SAMPLE
from slacktide.streams.records import Place, Record, text_of

SETTLE_MS = 30_000
"""A new owner of a partition has the inputs of samples within this time."""


class Unsettled:
    """Notes starts, takeovers, removals and recreated topics."""

    def __init__(self) -> None:
        self._taken_ms: dict[int, int] = {}
        self._begun_anew_ms: dict[int, int] = {}
        self._removed_ms: dict[str, int] = {}
        self._described_ms: dict[str, int] = {}
        self._forecast_ms: dict[str, int] = {}
        self._revisions: dict[str, str] = {}
        self._anew_ms: dict[int, int] = {}
        self._first: dict[int, Record] = {}
        self._last: dict[tuple[str, int], int] = {}
        """The last offset by topic and partition."""
        self._node_ms: dict[bytes | None, int] = {}

    def sample(self, record: Record) -> None:
        """Add a sample."""
        self._first.setdefault(record.partition, record)
        place = record.topic, record.partition
        if record.offset <= self._last.get(place, -1):
            self._anew_ms[record.partition] = record.timestamp_ms
        self._last[place] = record.offset
        self._node_ms.setdefault(record.key, record.timestamp_ms)

    def partition(self, number: int, at_ms: int) -> None:
        """Record that the partition was taken over."""
        self._taken_ms[number] = at_ms

    def began_anew(self, number: int, at_ms: int) -> None:
        """Record that the worker restarted under the same name, and lost its windows."""
        self._begun_anew_ms[number] = at_ms

    def removed(self, node: str, at_ms: int) -> None:
        """Record that the node's inventory was removed: workers forget it."""
        self._removed_ms[node] = at_ms
        self._revisions.pop(node, None)

    def described(self, node: str, revision: str, at_ms: int) -> None:
        """Record that the node's inventory was published. Workers read it later."""
        if self._revisions.get(node) != revision:
            self._revisions[node], self._described_ms[node] = revision, at_ms

    def inventory_on_its_way(self, node: str, at_ms: int) -> bool:
        """Return whether a worker may not have read the node's inventory or its removal by then."""
        changed = self._described_ms.get(node), self._removed_ms.get(node)
        return any(one is not None and abs(at_ms - one) <= SETTLE_MS for one in changed)

    def forecast_changed(self, node: str, at_ms: int) -> None:
        """Record that the node's forecast was published. Workers read it later."""
        self._forecast_ms[node] = at_ms

    def forecast_on_its_way(self, node: str, at_ms: int) -> bool:
        """Return whether a worker may not have read the node's newest forecast by then."""
        last_ms = self._forecast_ms.get(node)
        return last_ms is not None and abs(at_ms - last_ms) <= SETTLE_MS

    def knows_less(self, sample: Record, at_ms: int) -> bool:
        """Return whether the worker may not have known the inputs of the sample."""
        since = (
            self._taken_ms.get(sample.partition),
            self._anew_ms.get(sample.partition),
            self._removed_ms.get(text_of(sample.key or b"")),
            self._described_ms.get(text_of(sample.key or b"")),
            self._begun_ms(sample.partition),
        )
        return any(one is not None and abs(at_ms - one) <= SETTLE_MS for one in since)

    def taken_over(self, number: int, at_ms: int) -> bool:
        """Return whether the partition had another owner recently, which read back only the last boots of a node."""
        since = self._taken_ms.get(number), self._anew_ms.get(number), self._begun_ms(number)
        return any(one is not None and abs(at_ms - one) <= SETTLE_MS for one in since)

    def cold(self, sample: Record) -> bool:
        """Return whether the replay may not know the inputs of the sample, which precede the span."""
        begun_ms = self._node_ms.get(sample.key, sample.timestamp_ms)
        return sample.timestamp_ms - begun_ms <= LISTED_MS or self.knows_less(sample, sample.timestamp_ms)

    def warm_since_ms(self, partition: int) -> int | None:
        """Return the time from which the windows of replay and worker are equal; None: always."""
        since = (one.get(partition) for one in (self._taken_ms, self._anew_ms, self._begun_anew_ms))
        first = self._first.get(partition)
        cold = first.timestamp_ms if first is not None and first.offset > 0 else None
        return max((one for one in (*since, cold) if one is not None), default=None)

    def made_anew(self, sample: Record) -> bool:
        """Return whether the topic was recreated since, so that the sample is never answered."""
        anew_ms = self._anew_ms.get(sample.partition)
        return anew_ms is not None and sample.timestamp_ms <= anew_ms

    def may_lack(self, command: NodeCommand, record: Record) -> bool:
        """Return whether the answered sample may precede the trace."""
        first = self._first.get(record.partition)
        if first is None or self._anew_ms.get(record.partition) is not None:
            return True
        if command.sample is not None:
            return command.sample.offset < first.offset
        return record.timestamp_ms - first.timestamp_ms <= SETTLE_MS and first.offset > 0

    def _begun_ms(self, partition: int) -> int | None:
        first = self._first.get(partition)
        return None if first is None else first.timestamp_ms


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
            if record.topic == SAMPLE.name:
                partition = self._partition(record.place)
                if record.offset <= partition.last:  # the topic was recreated
                    partition.answered_to = partition.last = -1
                late = until_ms is None or record.timestamp_ms < until_ms
                if record.offset > partition.answered_to and not late:
                    return
                partition.last = record.offset
            self._give(self._waiting.popleft())

    def _give(self, record: Record) -> None:
        if record.topic == SAMPLE.name and record.offset in self._partition(record.place).refused:
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
