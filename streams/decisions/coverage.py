"""Which nodes the heartbeats of latest-state topics cover, for every reader. docs/silence.md has the rule.

What a topic holds of a node is fresh for 15 s (``UNSAID_MS``) after it was published, and after each heartbeat that
covers the node. A heartbeat counts while its writer owns the partition:

* Of two epochs the higher one counts. When nothing of it came for 15 s, the next heartbeat counts, whatever its epoch:
  a consumer group that was deleted begins anew.
* Within an epoch one worker owns the partition.
* A heartbeat must not come more than 5 s later after the one before than by the worker's own clock. Otherwise it waited
  while its writer was paused or cut off. The next one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.heartbeat import Heartbeat, heartbeat_of
from slacktide.schemas.metric import UNSAID_MS
from slacktide.streams.records import Record

UNSAID_S = UNSAID_MS / 1_000
LATE_MS = 5_000
"""A heartbeat is sent once, and given up after 6 s."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The newest heartbeat of an owner."""

    beat: Heartbeat
    appended_ms: int
    heard_s: float


class Coverage:
    """Hears the heartbeats of any number of topics, in the order of each partition."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], _Last] = {}

    def clear(self) -> None:
        """Nothing heard so far counts any more."""
        self._last.clear()

    def hear(self, record: Record, heard_s: float) -> Sequence[str]:
        """Take a heartbeat.

        Args:
            record: the heartbeat.
            heard_s: when it was heard, by the reader's clock, in seconds.

        Returns:
            The nodes that it covers from ``heard_s`` on; none where it does not count.

        Raises:
            BadMessageError: it cannot be read.

        """
        beat, place = heartbeat_of(record.headers), (record.topic, record.partition)
        last = self._last.get(place)
        if last is not None and heard_s < last.heard_s + UNSAID_S and not _follows(beat, last.beat):
            return ()
        self._last[place] = _Last(beat, record.timestamp_ms, heard_s)
        return () if last is not None and _late(beat, record.timestamp_ms, last) else beat.nodes


def _follows(beat: Heartbeat, last: Heartbeat) -> bool:
    """Whether it is of a newer owner, or of the same one and not older."""
    if beat.epoch != last.epoch:
        return beat.epoch > last.epoch
    return beat.worker == last.worker and beat.ticked_ms >= last.ticked_ms


def _late(beat: Heartbeat, appended_ms: int, last: _Last) -> bool:
    """Whether it waited on its way, as far as the owner's heartbeat before tells."""
    if (beat.worker, beat.epoch) != (last.beat.worker, last.beat.epoch):
        return False
    return appended_ms - last.appended_ms - (beat.ticked_ms - last.beat.ticked_ms) > LATE_MS
