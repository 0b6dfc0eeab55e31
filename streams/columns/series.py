"""Averages over a policy's window, of nodes and pods alike: a row of slots for each, in arrays over all of them.

A slot holds value x milliseconds and the milliseconds, of CPU and of memory. Where a figure was unknown the slot has no
weight, so that it counts neither as 0 nor as anything else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slacktide.streams.columns.rings import Floats, Ints, grown

SLOTS_MAX = 20
"""Per series: a third of a kB each, whatever the window. An average over 5 minutes goes on by 15 s."""
CELLS = 4
"""CPU x ms, memory x ms, ms of known CPU, ms of known memory."""
_SLOT, _SUM = np.dtype(np.complex128), np.dtype("V32")
"""As large as the cells of one slot, and as its sums."""
MINUTE_S = 60
_WITHIN_A_MINUTE_S = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)


def slot_ms(window_ms: int) -> int:
    """How long a slot of such a window is: a part of a minute, or minutes, so that segments are made of whole slots.

    >>> slot_ms(10_000), slot_ms(300_000), slot_ms(86_400_000)
    (1000, 15000, 4320000)
    """
    least_s = -(-window_ms // (SLOTS_MAX * 1_000))
    if least_s <= MINUTE_S:
        return next(length for length in _WITHIN_A_MINUTE_S if length >= least_s) * 1_000
    return -(-least_s // MINUTE_S) * MINUTE_S * 1_000


class Series:
    """Rows are given out and taken back; one that is given out knows nothing."""

    def __init__(self, rows: int) -> None:
        self._hold(np.zeros((rows, SLOTS_MAX, CELLS), np.float32), np.zeros((rows, CELLS)))
        self._published = np.zeros((rows, 2))
        """Averages as they were published last."""
        self._used_milli = np.zeros(rows)
        self._free: list[int] = []
        """Given back, the newest last; taken before those that were never given out."""
        self._given = 0

    def _hold(self, cells: NDArray[np.float32], totals: NDArray[np.float64]) -> None:
        self._cells, self._totals = cells, totals
        # A row or a slot of one is moved as a whole: that takes a tenth of the time.
        self._slots, self._sums = cells.reshape(-1).view(_SLOT), totals.reshape(-1).view(_SUM)

    def take(self, count: int) -> list[int]:
        """So many rows."""
        free, rows = self._free, len(self._cells)
        first = self._given
        self._given += max(0, count - len(free))
        while self._given > rows:
            rows *= 2
        if rows > len(self._cells):
            self._hold(grown(self._cells, rows), grown(self._totals, rows))
            self._published, self._used_milli = grown(self._published, rows), grown(self._used_milli, rows)
        return [free.pop() for _ in range(min(count, len(free)))] + list(range(first, self._given))

    def give_back(self, rows: list[int]) -> None:
        """They are forgotten."""
        self.clear(np.array(rows, np.int64))
        self._free += rows

    def clear(self, rows: Ints) -> None:
        """Know nothing any more."""
        self._cells[rows] = 0
        self._totals[rows] = 0

    def use(self, rows: Ints, cpu_milli: Floats) -> None:
        """Keep what these used in the newest sample; NaN: not known."""
        self._used_milli[rows] = cpu_milli

    def used(self, rows: Ints) -> Floats:
        """What was kept so; it means nothing of a row given out since."""
        return self._used_milli.take(rows)

    def open(self, rows: Ints, slots: Ints) -> None:
        """Begin these slots anew, one for each row."""
        places = rows * SLOTS_MAX + slots
        self._add_sums(rows, -self._slots.take(places).view(np.float32).reshape(-1, CELLS))
        self._slots[places] = 0
        again = rows[slots == 0]
        if len(again):  # once a round: what rounding left of the sums goes
            self._totals[again] = self._cells[again].sum(1, dtype=np.float64)

    def add(self, rows: Ints, slots: Ints, amounts: Floats) -> None:
        """Add to one slot of each row, in the order of ``CELLS``."""
        places = rows * SLOTS_MAX + slots
        before = self._slots.take(places).view(np.float32).reshape(-1, CELLS)
        after = (before + amounts).astype(np.float32)
        self._add_sums(rows, np.subtract(after, before, dtype=np.float64))
        self._slots[places] = after.reshape(-1).view(_SLOT)

    def _add_sums(self, rows: Ints, amounts: Floats) -> None:
        sums = self._totals.take(rows, 0)
        sums += amounts
        self._sums[rows] = sums.reshape(-1).view(_SUM)

    def add_block(self, rows: Ints, slots: Ints, amounts: Floats) -> None:
        """Add to these slots of all these rows, by row and slot."""
        places = rows[:, None], slots[None, :]
        before = self._cells[places]
        after = (before + amounts).astype(np.float32)
        self._totals[rows] += (after.astype(np.float64) - before).sum(1)
        self._cells[places] = after

    def cells(self, rows: Ints, slots: Ints) -> Floats:
        """What these slots hold, by row and slot."""
        return self._cells[rows[:, None], slots[None, :]].astype(np.float64)

    def averages(self, rows: Ints) -> Floats:
        """CPU and memory of each row over the time for which they are known; NaN: not known at all."""
        totals = self._totals.take(rows, 0)
        found = np.empty((2, len(rows))).T
        for figure in range(2):  # column by column: NumPy takes rows of two one by one
            weights = np.rint(totals[:, 2 + figure])
            weights[weights <= 0] = np.nan
            np.divide(totals[:, figure], weights, out=found[:, figure])
        return np.maximum(found, 0.0, out=found)

    def publish(self, rows: Ints, averages: Floats) -> None:
        """Keep what is published of these rows; ``averages``: float64 [n, 2]."""
        self._published[rows] = averages

    def published(self, rows: Ints) -> Floats:
        """What was published last of each row, by ``publish``; it means nothing of a row given out since."""
        return self._published.take(rows, 0)

    def totals(self, rows: Ints) -> Floats:
        """The sums over all slots."""
        found: Floats = self._totals[rows]
        return found
