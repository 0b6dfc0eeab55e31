"""Tracks which nodes the heartbeats of latest-state topics cover. docs/silence.md specifies the rule.

A node's record is fresh for 15 s (``UNCOVERED_MS``) after it was published, and after each heartbeat that covers the
node. A heartbeat is valid while its writer owns the partition:

* The higher epoch wins. After 15 s without its heartbeats any epoch is valid: a deleted group restarts its epochs.
* Within an epoch Kafka assigns a partition to one worker, or to one worker for each topic of samples.
* A heartbeat is invalid if its delay is over 5 s longer than that of the one before: its writer was paused or cut off.
  The next one is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slacktide.schemas.heartbeat import heartbeat_of
from slacktide.schemas.metric import UNCOVERED_MS
from slacktide.streams.records import Record

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
