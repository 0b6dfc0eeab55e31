"""Splits fetches into turns. While a turn is decided, nothing else runs in the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slacktide.schemas.topics import SAMPLE
from slacktide.streams.columns.batches import taken
from slacktide.streams.records import Place
from slacktide.streams.taken import Taken

TURN_RECORDS_MAX = 1_000
"""Some 30 ms of work. A sample in rows counts as ``ROW_RECORDS`` records."""
ROW_RECORDS = 4


class Turns:
    """A queue of fetched records."""

    def __init__(self) -> None:
        self._left: dict[Place, tuple[Taken, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, fetched: Mapping[Place, Sequence[Any]]) -> int:
        """Add the records of a fetch; return how many."""
        columns = taken(list(fetched.values()))
        self._left = {place: (one, 0) for place, one in zip(fetched, columns, strict=True) if len(one)}
        return sum(map(len, columns))

    def next(self) -> dict[Place, Taken]:
        """Return the next turn, by partition; empty at the end.

        It takes equally from each partition: a turn over more nodes costs less per sample.
        """
        turn: dict[Place, Taken] = {}
        room = TURN_RECORDS_MAX
        places = sorted(self._left, key=self._records_left)
        for number, place in enumerate(places):
            its = ROW_RECORDS if place.topic == SAMPLE.name else 1
            one, done = self._left[place]
            some = one.part(done, done + room // (len(places) - number) // its)
            if not some:
                continue
            turn[place] = some
            room -= len(some) * its
            self._left[place] = one, done + len(some)
            if not self._records_left(place):
                del self._left[place]
        return turn

    def _records_left(self, place: Place) -> int:
        one, done = self._left[place]
        return len(one) - done

    def clear(self) -> None:
        """Drop the rest after a rebalance. The new owners fetch it again."""
        self._left.clear()
