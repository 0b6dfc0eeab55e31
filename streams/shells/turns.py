"""What was fetched, in turns: nothing else of the process runs while a turn's records are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slacktide.streams.columns.batches import Taken, taken
from slacktide.streams.records import Place

TURN_RECORDS_MAX = 250


class Turns:
    """Whole fetches in, a part of each partition out: partitions share a turn evenly."""

    def __init__(self) -> None:
        self._left: dict[Place, tuple[Taken, int]] = {}
        """By place, what was fetched of it, and how much of that is out."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, fetched: Mapping[Place, Sequence[Any]]) -> int:
        """Add what a fetch brought, by place, once all before it is out; returns how many records that is."""
        columns = taken(list(fetched.values()))
        self._left = {place: (one, 0) for place, one in zip(fetched, columns, strict=True) if len(one)}
        return sum(map(len, columns))

    def next(self) -> dict[Place, Taken]:
        """The next turn, by place; empty when all is out."""
        share = max(1, TURN_RECORDS_MAX // max(1, len(self._left)))
        turn = {place: one.part(done, done + share) for place, (one, done) in self._left.items()}
        self._left = {
            place: (one, done + share) for place, (one, done) in self._left.items() if done + share < len(one)
        }
        return turn

    def clear(self) -> None:
        """Partitions have moved: what is left of the fetch is fetched again, here or elsewhere."""
        self._left.clear()
