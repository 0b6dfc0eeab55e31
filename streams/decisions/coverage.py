"""Which nodes the heartbeats of latest-state topics cover, for every reader. docs/silence.md has the rule.

What a topic holds of a node is fresh for 15 s (``UNCOVERED_MS``) after it was published, and after each heartbeat that
covers the node. A heartbeat counts while its writer owns the partition:

* Of two epochs the higher one counts. When nothing of it came for 15 s, the next heartbeat counts, whatever its epoch:
  a consumer group that was deleted begins anew.
* Within an epoch Kafka gives a partition to one worker, or to one for each topic of samples.
* A heartbeat must not come more than 5 s later after the one before than by the worker's own clock. Otherwise it waited
  while its writer was paused or cut off. The next one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slacktide.schemas.heartbeat import heartbeat_of
from slacktide.schemas.metric import UNCOVERED_MS
from slacktide.streams.records import Record

UNCOVERED_S = UNCOVERED_MS / 1_000
LATE_MS = 5_000
"""A heartbeat is sent once, and given up after 6 s."""


@dataclass(slots=True)
class _Owners:
    """Of one partition."""

    epoch: int
    received_s: float
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By worker, when its newest heartbeat was written by its own clock, and when it was appended, in milliseconds."""


class Coverage:
    """Reads the heartbeats of any number of topics, in the order of each partition."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int], _Owners] = {}

    def clear(self) -> None:
        """Forget all heartbeats."""
        self._owners.clear()

    def receive(self, record: Record, received_s: float) -> Sequence[str]:
        """Take a heartbeat.

        Args:
            record: the heartbeat.
            received_s: when it was received, by the reader's clock, in seconds.

        Returns:
            The nodes that it covers from ``received_s`` on; none where it does not count.

        Raises:
            BadMessageError: it cannot be read.

        """
        beat, place = heartbeat_of(record.headers), (record.topic, record.partition)
        owners = self._owners.get(place)
        if owners is None or _replaced(owners, beat.epoch, received_s):
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


def _replaced(owners: _Owners, epoch: int, received_s: float) -> bool:
    """Whether a heartbeat of this epoch shows that there are other owners."""
    return epoch > owners.epoch or (epoch < owners.epoch and received_s >= owners.received_s + UNCOVERED_S)
