"""Merges points of one node from several resolutions into equal spans. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from slacktide.deploy.console.history.points import AT, COLUMNS, POINTS, Block, folded
from slacktide.deploy.console.history.view import NONE, Series


class Gathered:
    """Points of one node in equal spans."""

    def __init__(self, node: str, from_s: int, to_s: int, each_s: int) -> None:
        self.from_s = from_s
        self._node, self._to_s, self._each_s = node, to_s, each_s
        count = -(-(to_s - from_s) // each_s)
        self._columns = [array("q", [NONE]) * count for _ in COLUMNS]

    def add(self, block: Block, step_s: int, begin_s: int, from_s: int) -> None:
        """Add a block's points from a time on."""
        spans = list(self._spans(block[0], step_s, begin_s, from_s))
        of = AT[step_s]
        for one, column in zip(COLUMNS, self._columns, strict=True):
            source = block[of[one.name if step_s > 1 else one.of]]
            if source.count(NONE) == POINTS:
                continue
            for place, slot, behind in spans:
                if behind == slot + 1 and column[place] == NONE:
                    column[place] = source[slot]
                else:
                    column[place] = folded(one.how, array("q", (column[place], *source[slot:behind])))

    def _spans(self, present: array[int], step_s: int, begin_s: int, from_s: int) -> Iterator[tuple[int, int, int]]:
        """Yield index ranges of a block by target point."""
        slot, last = max(0, -(-(from_s - begin_s) // step_s)), min(POINTS, -(-(self._to_s - begin_s) // step_s))
        while slot < last:
            place = (begin_s + slot * step_s - self.from_s) // self._each_s
            end_s = self.from_s + (place + 1) * self._each_s
            behind = min(last, max(slot + 1, -(-(end_s - begin_s) // step_s)))
            if place >= 0 and any(one > 0 for one in present[slot:behind]):
                yield place, slot, behind
            slot = behind

    def series(self) -> Series:
        """Return the points with data."""
        there = [place for place, present in enumerate(self._columns[0]) if present > 0]
        return Series(
            node=self._node,
            step_ms=self._each_s * 1_000,
            at_ms=array("q", ((self.from_s + place * self._each_s) * 1_000 for place in there)),
            columns={
                one.name: array("q", (column[place] for place in there))
                for one, column in zip(COLUMNS, self._columns, strict=True)
            },
        )
