"""Averages of nodes and pods over a policy's window: one row of slots each, in arrays.

A slot holds value x ms and the ms, of CPU and of memory. An unknown figure has no weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slacktide.streams.columns.rings import Floats, Ints, grown

SLOTS_MAX = 20
"""Per series, whatever the window: a third of a kB. An average over 5 minutes advances by 15 s."""
CELLS = 4
"""CPU x ms, memory x ms, ms of known CPU, ms of known memory."""
_PAIR = np.dtype(np.complex128)
"""As large as two sums, or as one slot's cells."""
MINUTE_S = 60
_WITHIN_A_MINUTE_S = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)


def slot_ms(window_ms: int) -> int:
    """Return the length of a slot: a divisor of a minute, or whole minutes, so that segments hold whole slots."""
    least_s = -(-window_ms // (SLOTS_MAX * 1_000))
    if least_s <= MINUTE_S:
        return next(length for length in _WITHIN_A_MINUTE_S if length >= least_s) * 1_000
    return -(-least_s // MINUTE_S) * MINUTE_S * 1_000


class Series:
    """Assigns and recycles rows; an assigned row is empty."""

    def __init__(self, rows: int) -> None:
        self._hold(np.zeros((SLOTS_MAX, rows, CELLS), np.float32), np.zeros((2, rows, 2)))
        self._published = np.zeros((rows, 2))
        self._used_milli = np.zeros(rows)
        self._free: list[int] = []
        self._given = 0

    def _hold(self, cells: NDArray[np.float32], totals: NDArray[np.float64]) -> None:
        # By slot, then row: at a time, most nodes add to the same slot, which fits a processor's cache.
        self._cells, self._totals = cells, totals
        # Moving a slot or a pair as one item takes a tenth of the time.
        self._slots, self._pairs = cells.reshape(-1).view(_PAIR), totals.view(_PAIR)[..., 0]

    @property
    def _rows(self) -> int:
        return len(self._published)

    def take(self, count: int) -> list[int]:
        """Assign ``count`` rows."""
        free, rows = self._free, self._rows
        first = self._given
        self._given += max(0, count - len(free))
        while self._given > rows:
            rows *= 2
        if rows > self._rows:
            self._hold(grown(self._cells, rows, 1), grown(self._totals, rows, 1))
            self._published, self._used_milli = grown(self._published, rows), grown(self._used_milli, rows)
        return [free.pop() for _ in range(min(count, len(free)))] + list(range(first, self._given))

    def give_back(self, rows: list[int]) -> None:
        """Recycle rows."""
        self.clear(np.array(rows, np.int64))
        self._free += rows

    def clear(self, rows: Ints) -> None:
        """Clear rows."""
        self._cells[:, rows] = 0
        self._totals[:, rows] = 0

    def use(self, rows: Ints, cpu_milli: Floats) -> None:
        """Keep the CPU use of the newest sample; NaN: unknown."""
        self._used_milli[rows] = np.ascontiguousarray(cpu_milli)

    def used(self, rows: Ints) -> Floats:
        """Return what ``use`` kept; undefined for a row assigned since."""
        return self._used_milli.take(rows)

    def open(self, rows: Ints, slots: Ints) -> None:
        """Clear these slots, one for each row."""
        places = slots * self._rows + rows
        self._add_sums(rows, -self._slots.take(places).view(np.float32).astype(np.float64).reshape(-1, CELLS))
        self._slots[places] = 0
        again = rows[slots == 0]
        if len(again):  # once a round: removes the rounding errors of the sums
            self._totals[:, again] = _by_pair(self._cells[:, again].sum(0, dtype=np.float64))

    def add(self, rows: Ints, slots: Ints, amounts: Floats) -> None:
        """Add to one slot of each row, in the order of ``CELLS``."""
        places = slots * self._rows + rows
        before = self._slots.take(places).view(np.float32).reshape(-1, CELLS)
        after = (before + amounts).astype(np.float32)
        self._add_sums(rows, np.subtract(after, before, dtype=np.float64))
        self._slots[places] = after.reshape(-1).view(_PAIR)

    def _add_sums(self, rows: Ints, amounts: Floats) -> None:
        more = amounts.view(_PAIR)
        for at, pairs in enumerate(self._pairs):
            pairs[rows] = pairs.take(rows) + more[:, at]

    def add_block(self, rows: Ints, slots: Ints, amounts: Floats) -> None:
        """Add to all these slots of all these rows, by row and slot."""
        places = slots[None, :], rows[:, None]
        before = self._cells[places]
        after = (before + amounts).astype(np.float32)
        self._totals[:, rows] += _by_pair((after.astype(np.float64) - before).sum(1))
        self._cells[places] = after

    def cells(self, rows: Ints, slots: Ints) -> Floats:
        """Return the cells of slots, float32 [N, k, 4]; ``slots``: int64 [N, k], of each row."""
        places = slots * self._rows + rows[:, None]
        return self._slots.take(places).view(np.float32).reshape(*slots.shape, CELLS)

    def averages(self, rows: Ints) -> Floats:
        """Return the average CPU and memory of each row over the time in which they are known; NaN: unknown."""
        amounts, known_ms = (pairs.take(rows).view(np.float64).reshape(-1, 2) for pairs in self._pairs)
        found = np.empty((2, len(rows))).T
        for figure in range(2):  # by column: NumPy is slow with rows of two
            weights = np.rint(known_ms[:, figure])
            weights[weights <= 0] = np.nan
            np.divide(amounts[:, figure], weights, out=found[:, figure])
        return np.maximum(found, 0.0, out=found)

    def publish(self, rows: Ints, averages: Floats) -> None:
        """Keep the published averages of these rows, float64 [n, 2]."""
        self._published[rows] = averages

    def published(self, rows: Ints) -> Floats:
        """Return what ``publish`` kept; undefined for a row assigned since."""
        return self._published.take(rows, 0)

    def totals(self, rows: Ints) -> Floats:
        """Return the sums over all slots."""
        return self._totals[:, rows].swapaxes(0, 1).reshape(-1, CELLS)


def _by_pair(sums: Floats) -> Floats:
    return sums.reshape(-1, 2, 2).swapaxes(0, 1)
