"""What was fetched, in turns: nothing else of the process runs while a turn's records are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slacktide.streams.columns.batches import Taken, taken
from slacktide.streams.records import Place

TURN_RECORDS_MAX = 250


class Turns:
    """Whole fetches in, turns out."""

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
        """The next turn, by place; empty when all is out.

        As few places as fill it: each costs a write of its own for each topic that is written.
        """
        turn: dict[Place, Taken] = {}
        room = TURN_RECORDS_MAX
        for place, (one, done) in list(self._left.items()):
            turn[place] = one.part(done, done + room)
            taken_up = len(turn[place])
            room -= taken_up
            self._left[place] = one, done + taken_up
            if done + taken_up == len(one):
                del self._left[place]
            if not room:
                break
        return turn

    def clear(self) -> None:
        """Partitions have moved: what is left of the fetch is fetched again, here or elsewhere."""
        self._left.clear()
