"""Averages of nodes and pods over a policy's window: one row of slots each, in arrays; and each node's time and rows.

A slot holds value x ms and the ms, of CPU and of memory. An unknown figure has no weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slacktide.schemas.inventory import Pod
from slacktide.streams.columns.rings import Floats, Ints, grown
from slacktide.streams.decisions.known_pods import PodName, known

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


OWN = 3
"""Series of a node itself: its use, its system's, and coverage with number of samples."""
NEVER = -1
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True, frozen=True, kw_only=True)
class Published:
    """What was last published of a node."""

    observed_ms: int
    revisions: tuple[str, str, str, str, str]
    """Of facts, inventory, pods, policy and forecast."""
    rows: Ints
    """The rows that were averaged, as ``NodeWindow.all_rows``. ``Series.published`` has the averages."""


class Marks:
    """The time state of all nodes in int64 arrays, so that many nodes are compared at once."""

    def __init__(self, rows: int) -> None:
        self.window_ms = np.zeros(rows, np.int64)
        self.slot_ms = np.full(rows, 1_000)
        self.slots = np.ones(rows, np.int64)
        self.slot = np.full(rows, -1)
        self.watermark_ms = np.zeros(rows, np.int64)
        self.minute = np.zeros(rows, np.int64)
        """Of event time: the first minute without a published segment."""
        self.published_ms = np.full(rows, NEVER)
        """Event time of the last publication."""
        self.published_by = np.zeros(rows, np.int64)
        """Serial number of the head with the same inputs; 0: unknown."""
        self.held_ms = np.full(rows, NEVER)
        """The tick at which a sample last showed that the published figures hold."""
        self.series = np.full(rows, OWN)
        self.own = np.zeros((rows, OWN), np.int64)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        for name, array in vars(self).items():
            setattr(self, name, grown(array, rows))

    def clear(self, row: int) -> None:
        """Reset a node's row."""
        self.slot[row], self.published_ms[row], self.held_ms[row] = -1, NEVER, NEVER
        self.watermark_ms[row] = self.minute[row] = self.published_by[row] = 0
        self.series[row] = OWN


class _Mark:
    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, window: _Marked, _: type) -> int:
        return int(getattr(window.marks, self._name)[window.row])

    def __set__(self, window: _Marked, value: int) -> None:
        getattr(window.marks, self._name)[window.row] = value


class _Marked:
    __slots__ = ()
    row: int
    marks: Marks
    window_ms = _Mark()
    slot_ms = _Mark()
    slots = _Mark()
    slot = _Mark()
    watermark_ms = _Mark()
    minute = _Mark()


@dataclass(slots=True)
class NodeWindow(_Marked):
    """A node's place in the arrays. Its watermark is the end of the newest sample and never goes back."""

    node: str
    row: int
    """In the rings and the other arrays per node."""
    marks: Marks
    own: list[int]
    uids: list[str] = field(default_factory=list)
    """Of the newest sample, in its order."""
    use_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """Series of the pods in ``uids``."""
    kept: tuple[str, ...] = ()
    """Uids of all pods whose series are kept, in order."""
    all_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """The node's own series, then those of ``kept``."""
    listed: Sequence[Pod] | None = None
    """The pod list that ``kept`` follows."""
    names: list[PodName] = field(default_factory=list)
    """Names of ``kept`` from the latest list; empty: no list had one."""
    gone: bool = False
    """Its row belongs to another node."""
    _published: Published | None = None

    @property
    def published(self) -> Published | None:
        """Return what was last published; None: nothing, or it must be published again."""
        return self._published

    @published.setter
    def published(self, published: Published | None) -> None:
        self._published = published
        self.marks.published_ms[self.row] = NEVER if published is None else published.observed_ms
        self.marks.published_by[self.row] = 0

    def begin(self, window_ms: int, series: Series) -> None:
        """Restart the averages with a window of this length; the pods' series are kept."""
        self.window_ms, self.slot_ms = window_ms, slot_ms(window_ms)
        self.slots = max(1, -(-window_ms // self.slot_ms))
        self.slot = -1
        series.clear(self.all_rows)

    @property
    def rows(self) -> dict[str, int]:
        """Return the series of ``kept``, by uid."""
        return dict(zip(self.kept, self.all_rows[OWN:].tolist(), strict=True))

    def follow(
        self, group: Callable[[], AbstractSet[str]], uids: list[str], pods: Sequence[Pod] | None, series: Series
    ) -> None:
        """Keep the series of the pods in a sample or its pod list, and drop others.

        ``group`` returns the pods in the best-effort group.

        A pod that only one of them names is kept, because the two are read at different times. So a pod that starts or
        ends causes no dip in the reclaimed resources.
        """
        listed, before = known(pods or ()), self.names
        by_uid = listed.by_uid
        rows = self._keep(by_uid.keys() | uids, series)
        if len(by_uid) == len(rows):
            self.names = [by_uid[uid].name for uid in self.kept]
        else:
            had, its_group = {name.uid: name for name in before}, group()
            self.names = [
                by_uid[uid].name if uid in by_uid else _renamed(had.get(uid), uid, best_effort=uid in its_group)
                for uid in self.kept
            ]
        if uids is not listed.uids:  # each uid is in memory once
            same = dict(zip(self.kept, self.kept, strict=True))
            uids = [same[uid] for uid in uids]
        self.uids, self.listed = uids, pods
        self.use_rows = np.array([rows[uid] for uid in uids], np.int64)

    def keep(self, uids: Iterable[str], series: Series) -> None:
        """Keep the series of more pods until the next sample."""
        self._keep({*self.kept, *uids}, series)
        before = {name.uid: name for name in self.names}
        self.names = [_renamed(before.get(uid), uid, best_effort=False) for uid in self.kept]

    def _keep(self, uids: AbstractSet[str], series: Series) -> dict[str, int]:
        """Keep the series of these pods only; return them."""
        rows, before = self.rows, set(self.kept)
        gone, come = before - uids, uids - before
        if gone or come:
            series.give_back([rows.pop(uid) for uid in gone])
            rows |= zip(come, series.take(len(come)), strict=True)
            self.kept = tuple(sorted(uids))
            self.all_rows = np.array([*self.own, *map(rows.__getitem__, self.kept)], np.int64)
            self.marks.series[self.row], self.marks.published_by[self.row] = len(self.all_rows), 0
        return rows


def _renamed(before: PodName | None, uid: str, *, best_effort: bool) -> PodName:
    """Name a pod that no list has; without an earlier name, its group determines class and QoS."""
    if before is not None and (before.namespace or before.qos or not best_effort):
        return before
    return PodName(uid, "", "", *(("koord-batch", "BE") if best_effort else ("", "")))
