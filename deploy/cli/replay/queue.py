"""``slacktide replay --queue``: decides the queue's turns again."""

from __future__ import annotations

import msgspec

from slacktide.deploy.cli.replay import source
from slacktide.deploy.runtime.text import count
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.queue.replay import replay
from slacktide.streams.records import Record

TOPICS = tuple(one.name for one in (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_OUTCOME, QUEUE_DECISION))


class QueueResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    turns: int
    """The number of repeated decisions, including the starts of terms."""
    equal: int
    different: list[str]
    """EPOCH/TURN of the first decisions that differ."""

    @property
    def fine(self) -> bool:
        """Return whether decisions were repeated, and all are equal."""
        return 0 < self.turns == self.equal


def decided(where: source.Where, shown: int) -> QueueResult:
    """Decide the queue's records again.

    Args:
        where: the records, from their start.
        shown: limit for listed differences.
    """
    records: list[Record] = []
    source.read(where, TOPICS, lambda _: records.extend)
    again = list(replay(records))
    different = [f"{one.recorded.epoch}/{one.recorded.turn}" for one in again if not one.equal]
    return QueueResult(turns=len(again), equal=len(again) - len(different), different=different[:shown])


def text_of(one: QueueResult) -> str:
    """Format the result for a terminal."""
    if not one.turns:
        return "no turn was decided again: the records do not contain the beginning of a term"
    if one.fine:
        return f"{count(one.turns, 'turn')} decided again: all are equal, byte for byte"
    named = ", ".join(one.different)
    return (
        f"{count(one.turns, 'turn')} decided again: {one.turns - one.equal:,} different, first "
        f"{named}\nPossible causes: compacted or deleted inputs, or another version of the rules."
    )
