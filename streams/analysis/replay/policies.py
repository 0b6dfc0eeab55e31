"""Tracks which policy was in force when, and when the inputs of worker and replay may differ.

Each worker reads a policy some time after it was written. Samples without a valid node proof are removed.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.codec import MALFORMED, decode, encode
from slacktide.schemas.command import NodeCommand, Origin
from slacktide.schemas.policy import DEFAULT, KEY, Policy
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import COMMAND, POLICY, SAMPLE
from slacktide.streams.proofs import believes
from slacktide.streams.records import Out, Place, Record, text_of
from slacktide.streams.rendering import RenderedAnswers
from slacktide.streams.worker import Worker

GRACE_MS = 30_000
"""The time after a policy change in which a worker may still answer by the former policy."""
SLACK_MS = 2_000
"""Tolerated difference between the clocks of two records."""
_DEFAULT = Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=KEY.encode(), value=encode(DEFAULT))


class Policies:
    """The policies of a trace, in order. The first one holds from the start.

    A compacted topic keeps only the newest record per key, and writers repeat themselves every minute.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._known: dict[str, Record] = {DEFAULT.version: _DEFAULT}
        self._since_ms: list[int] = []
        self._versions: list[str] = []
        self._records: list[Record] = []
        reader, source = Worker(""), "open"
        for record in records:
            dead = reader.policy(record)
            if record.value is None or dead:
                continue
            policy = reader.in_force
            version = policy.version
            if not self._versions or (version, policy.node_source) != (self._versions[-1], source):
                self._known[version] = opened(record, policy)
                self._records.append(record)
                self._since_ms.append(record.timestamp_ms)
                self._versions.append(version)
                source = policy.node_source

    def __len__(self) -> int:
        return len(self._records)

    @property
    def newest(self) -> Policy:
        """Return the last written policy, else the default."""
        return decode(self._records[-1].value, Policy) if self._records else DEFAULT

    @property
    def changes(self) -> Mapping[int, str]:
        """Return the versions by time of writing."""
        return dict(zip(self._since_ms, self._versions, strict=True))

    def record(self, version: str) -> Record | None:
        """Return the policy of that version, for any node; None: not in the trace."""
        return self._known.get(version)

    def held(self, version: str, at_ms: int) -> bool:
        """Return whether a worker may have used it at that time."""
        if version == DEFAULT.version and (not self._since_ms or at_ms <= self._since_ms[0] + GRACE_MS):
            return True
        last = bisect_right(self._since_ms, at_ms + SLACK_MS) - 1
        first = max(0, bisect_right(self._since_ms, at_ms - GRACE_MS) - 1)
        return version in self._versions[first : max(last, 0) + 1]


def opened(record: Record, policy: Policy) -> Record:
    """Return the policy's record, changed so that a worker without inventory decides."""
    return msgspec.structs.replace(record, value=encode(msgspec.structs.replace(policy, node_source="open")))


class Run:
    """One run over a trace, by a worker that reads each policy when it was written.

    ``since_ms``: earlier samples serve as history. ``nodes``: only these; empty: all.
    """

    def __init__(self, policies: Policies, since_ms: int, nodes: Iterable[str]) -> None:
        self.worker = Worker("replay", believes)
        self.changed_ms = 0
        """The time at which the policy in force was written; 0: the first policy."""
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        """The times of the first and last sample that counts; None: none."""
        self._since_ms, self._keys = since_ms, {node.encode() for node in nodes}
        self._coming = list(reversed(policies._records))  # noqa: SLF001 - of one file
        if self._coming:
            self.worker.policy(self._coming.pop())

    def covers(self, record: Record) -> bool:
        """Return whether a record is of one of the nodes."""
        return not self._keys or record.key in self._keys

    def early(self, record: Record) -> bool:
        """Return whether a record serves as history only."""
        return record.timestamp_ms < self._since_ms

    def counted(self, first_ms: int, last_ms: int) -> None:
        """Note the times of samples that count, by Kafka's clock: node clocks may be wrong."""
        self.first_ms, self.last_ms = first_ms if self.first_ms is None else self.first_ms, last_ms

    def decided(self, samples: Sequence[Record], now_ms: int) -> tuple[list[bytes | None], list[Out]]:
        """Return the worker's answer to each sample, None: there is none; and the figures that it publishes."""
        answers = self.worker.answers(samples, now_ms)
        assert isinstance(answers, RenderedAnswers), "it has no shadow"
        return answers.of_samples(), self.worker.figures(now_ms)

    def due(self, now_ms: int) -> bool:
        """Return whether another policy was written by that time."""
        return bool(self._coming) and self._coming[-1].timestamp_ms <= now_ms

    def advance(self, now_ms: int) -> Policy:
        """Advance the time."""
        while self.due(now_ms):
            record = self._coming.pop()
            self.worker.policy(record)
            self.changed_ms = record.timestamp_ms
        return self.worker.in_force


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
        return _near(at_ms, self._described_ms.get(node), self._removed_ms.get(node))

    def forecast_changed(self, node: str, at_ms: int) -> None:
        """Record that the node's forecast was published. Workers read it later."""
        self._forecast_ms[node] = at_ms

    def forecast_on_its_way(self, node: str, at_ms: int) -> bool:
        """Return whether a worker may not have read the node's newest forecast by then."""
        return _near(at_ms, self._forecast_ms.get(node))

    def knows_less(self, sample: Record, at_ms: int) -> bool:
        """Return whether the worker may not have known the inputs of the sample."""
        node = text_of(sample.key or b"")
        return self.taken_over(sample.partition, at_ms) or self.inventory_on_its_way(node, at_ms)

    def taken_over(self, number: int, at_ms: int) -> bool:
        """Return whether the partition had another owner recently, which read back only the last boots of a node."""
        first = self._first.get(number)
        begun_ms = None if first is None else first.timestamp_ms
        return _near(at_ms, self._taken_ms.get(number), self._anew_ms.get(number), begun_ms)

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


def _near(at_ms: int, *times_ms: int | None) -> bool:
    return any(one is not None and abs(at_ms - one) <= SETTLE_MS for one in times_ms)


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

    ``policies``: of the trace; without required proofs nothing is held back. ``sink``: receives the remaining records,
    in order.
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
        except MALFORMED:
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
                if record.offset in partition.refused:
                    partition.refused.discard(record.offset)
                    self.dropped += 1
                else:
                    self._sink(record)
            elif record.topic != COMMAND.name or not _refuses(record):
                self._sink(record)
            self._waiting.popleft()

    def _partition(self, place: Place) -> _Partition:
        return self._partitions.setdefault(place, _Partition())


def _refuses(record: Record) -> bool:
    try:
        return _answered.decode(record.value or b"").proof not in PROVEN
    except MALFORMED:
        return False
