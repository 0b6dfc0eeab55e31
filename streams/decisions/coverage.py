"""The latest records of nodes, and which nodes the heartbeats of their topics cover. docs/silence.md has the rule.

A node's record is fresh for 15 s (``UNCOVERED_MS``) after it was published, and after each heartbeat that covers the
node. A heartbeat is valid while its writer owns the partition:

* The higher epoch wins. After 15 s without its heartbeats any epoch is valid: a deleted group restarts its epochs.
* Within an epoch Kafka assigns a partition to one worker, or to one worker for each topic of samples.
* A heartbeat is invalid if its delay is over 5 s longer than that of the one before: its writer was paused or cut off.
  The next one is valid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.heartbeat import heartbeat_of, is_heartbeat
from slacktide.schemas.metric import UNCOVERED_MS, NodeMetric
from slacktide.schemas.score import NodeScore
from slacktide.streams.records import Record, check_node, text_of

M = TypeVar("M", NodeMetric, NodeAllocatable, NodeScore)

UNCOVERED_S = UNCOVERED_MS / 1_000
LATE_MS = 5_000
"""A heartbeat is sent once, without a retry. The send times out after 6 s."""


@dataclass(slots=True)
class _Owners:
    """The writers of one partition."""

    epoch: int
    received_s: float
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By worker: the milliseconds of its newest heartbeat by its own clock and by the record's timestamp."""


class Coverage:
    """Reads the heartbeats of any number of topics, in the order of each partition."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int], _Owners] = {}

    def clear(self) -> None:
        """Forget all heartbeats."""
        self._owners.clear()

    def receive(self, record: Record, received_s: float) -> Sequence[str]:
        """Return the nodes that a heartbeat covers from ``received_s`` on; none if it is invalid.

        ``received_s``: seconds by the reader's clock. Raises BadMessageError if the heartbeat is malformed.
        """
        beat, place = heartbeat_of(record.headers), (record.topic, record.partition)
        owners = self._owners.get(place)
        # Another epoch proves that the owners changed if it is higher, or if theirs was silent.
        if (
            owners is None
            or beat.epoch > owners.epoch
            or (beat.epoch < owners.epoch and received_s >= owners.received_s + UNCOVERED_S)
        ):
            owners = self._owners[place] = _Owners(beat.epoch, received_s)
        elif beat.epoch < owners.epoch:
            return ()
        owners.received_s = received_s
        ticked_ms, appended_ms = owners.last.get(beat.worker, (beat.ticked_ms, record.timestamp_ms))
        passed_ms = beat.ticked_ms - ticked_ms
        if passed_ms < 0:
            return ()
        owners.last[beat.worker] = beat.ticked_ms, record.timestamp_ms
        late = record.timestamp_ms - appended_ms - passed_ms > LATE_MS
        return () if late else beat.nodes


@dataclass(slots=True)
class Latest(Generic[M]):
    """A node's latest record of a topic. Times are seconds by the reader's clock."""

    message: M
    published_s: float
    covered_s: float
    """When it was published, or last covered by a heartbeat."""

    def take(self, message: M, at_s: float) -> bool:
        """Replace it, unless it is fresh and newer by boot and sequence number; of equals the later one counts.

        Once it is frozen, an older boot is the one that workers accept.
        """
        order = message.boot_id, message.seq
        if at_s < self.covered_s + UNCOVERED_S and order < (self.message.boot_id, self.message.seq):
            return False
        self.message, self.published_s = message, max(at_s, self.published_s)
        self.cover(at_s)
        return True

    def cover(self, at_s: float) -> None:
        """Keep it fresh by a heartbeat."""
        self.covered_s = max(at_s, self.covered_s)


class NodeTable(Generic[M]):
    """The latest record of each node in a topic."""

    def __init__(self, kind: type[M]) -> None:
        self._kind: type[M] = kind
        self._coverage = Coverage()
        self.latest: dict[str, Latest[M]] = {}

    def read(self, record: Record, at_s: float) -> M | None:
        """Read a record of the topic: a node's figures, their removal, or a heartbeat. Return figures that count.

        Raises BadMessageError if it is malformed, or its key is another node.
        """
        if is_heartbeat(record.key):
            self.cover(self._coverage.receive(record, at_s), at_s)
            return None
        node = text_of(record.key or b"")
        if record.value is None:  # the worker removed them
            self.forget(node)
            return None
        message = decode(record.value, self._kind)
        check_node(node, message.node, self._kind.__name__)
        return message if self.take(message, at_s) else None

    def take(self, message: M, at_s: float) -> bool:
        """Add a record. False: a newer one is fresh."""
        known = self.latest.setdefault(message.node, Latest(message, at_s, at_s))
        return known.take(message, at_s)

    def cover(self, nodes: Iterable[str], at_s: float) -> None:
        """Keep the records of these nodes fresh by a heartbeat."""
        for node in nodes:
            if (known := self.latest.get(node)) is not None:
                known.cover(at_s)

    def forget(self, node: str) -> None:
        """Forget a removed node."""
        self.latest.pop(node, None)

    def clear(self) -> None:
        """Forget all: Kafka was unavailable."""
        self.latest.clear()
        self._coverage.clear()

    def of(self, node: str, now_s: float) -> M | None:
        """Return the node's record; None: frozen or unknown."""
        known = self.latest.get(node)
        return None if known is None or now_s >= known.covered_s + UNCOVERED_S else known.message

    def is_silent(self, node: str, now_s: float) -> bool:
        """Return whether the node's record is frozen."""
        return node in self.latest and self.of(node, now_s) is None
