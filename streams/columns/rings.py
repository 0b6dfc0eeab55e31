"""The last 30 minutes of each node by second: node and system use, in arrays over all nodes.

A second holds the average of its samples, weighted by coverage, in whole millicores and bytes; NaN if unknown. So it is
written and read back without loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FIGURES = 4
"""CPU and memory of the node, then of the system."""
SECONDS = 1_800
MINUTE = 60
MINUTES = SECONDS // MINUTE
LENGTHS_S = (300, 600, 1_800)
PERCENTS = (50, 90, 95, 99)
NODES_AT_ONCE = 32
"""Their seconds fit a processor's cache: percentiles of 200 nodes at once take twice the time, and much memory."""

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
_ALL = np.arange(FIGURES)


@dataclass(frozen=True, slots=True)
class Spreads:
    """Statistics of several nodes over one length."""

    length_s: int
    covered_ms: list[int]
    figures: list[list[list[float]]]
    """Of each node and figure: average, then the percentiles; NaN: unknown."""


class Rings:
    """One ring of 32 kB per row. ``Windows`` assigns the rows."""

    def __init__(self, rows: int) -> None:
        self._values = np.zeros((rows, FIGURES, SECONDS), np.float32)
        self._covered = np.zeros((rows, SECONDS), np.uint16)
        self._sums = np.zeros((rows, FIGURES))
        self._weights = np.zeros((rows, FIGURES))
        self._newest = np.full(rows, -1, np.int64)
        self._oldest = np.zeros(rows, np.int64)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        for name, array in vars(self).items():
            setattr(self, name, grown(array, rows))

    def clear(self, row: int) -> None:
        """Clear a node's row."""
        self._covered[row] = 0
        self._newest[row] = -1

    def add(self, rows: Ints, begins_ms: Ints, ends_ms: Ints, figures: Floats) -> None:
        """Add one sample per node; no node twice.

        ``begins_ms``: where each sample's coverage begins; at its end: it covers nothing. ``ends_ms``: not before what
        is there already. ``figures``: by node; NaN: unknown.
        """
        firsts, lasts = begins_ms // 1_000, (ends_ms - 1) // 1_000
        split = lasts > firsts
        heads = begins_ms < ends_ms
        if not heads.all():
            self._open(rows[~heads], lasts[~heads])
            rows, begins_ms, ends_ms, figures = rows[heads], begins_ms[heads], ends_ms[heads], figures[heads]
            firsts, lasts, split = firsts[heads], lasts[heads], split[heads]
        self._open(rows, firsts)
        self._put(rows, firsts, np.minimum(ends_ms, (firsts + 1) * 1_000) - begins_ms, figures)
        for at in np.nonzero(lasts - firsts > 1)[0]:
            self._put_whole(int(rows[at]), int(firsts[at]) + 1, int(lasts[at]), figures[at])
        if split.any():
            rows, lasts = rows[split], lasts[split]
            self._open(rows, lasts)
            self._put(rows, lasts, ends_ms[split] - lasts * 1_000, figures[split])

    def fill(self, row: int, second: int, weight_ms: int, figures: Floats, now_ms: int) -> int:
        """Cover the rest of a second by at most ``weight_ms``; return the milliseconds added."""
        if self._newest[row] < 0:
            self._newest[row] = self._oldest[row] = second
        if not self._newest[row] - SECONDS < second <= self._newest[row]:
            return 0
        slot = second % SECONDS
        covered = int(self._covered[row, slot])
        weight_ms = min(weight_ms, min(1_000, now_ms - second * 1_000) - covered)
        if weight_ms <= 0:
            return 0
        before = self._values[row, :, slot].astype(np.float64)
        before_ms = np.where(np.isnan(before), 0, covered) if covered else np.zeros(FIGURES)
        if second == self._newest[row]:
            before_ms = self._weights[row]
        known_ms = np.where(np.isnan(figures), 0, weight_ms)
        sums = or_zero(before) * before_ms + or_zero(figures) * known_ms
        if second == self._newest[row]:
            self._sums[row], self._weights[row] = sums, before_ms + known_ms
        self._values[row, :, slot] = _average(sums, before_ms + known_ms)
        self._covered[row, slot] += weight_ms
        self._oldest[row] = min(int(self._oldest[row]), second)
        return weight_ms

    def fill_minutes(self, rows: Ints, minutes: Ints, ends: Ints, covered_ms: Ints, figures: Floats) -> Ints:
        """Fill the gaps of minutes that ``minutes`` returned; return the milliseconds added to each second.

        ``minutes``: of event time, by number, one for each row; no place in the rings twice. ``ends``: numbers of the
        seconds in which their coverage breaks off. There, existing coverage came later, and both count. In any other
        second, the larger coverage includes the smaller. ``covered_ms``: by second, at most 1,000. ``figures``: by
        figure and second; NaN: unknown.
        """
        places = minutes % MINUTES
        values = self._values.reshape(-1, FIGURES, MINUTES, MINUTE)
        covered = self._covered.reshape(-1, MINUTES, MINUTE)
        numbers = minutes[:, None] * MINUTE + np.arange(MINUTE)
        newest = self._newest[rows, None]
        there = (numbers <= newest) & (numbers > newest - SECONDS)
        before_ms = covered[rows, places].astype(np.int64)
        broken_off = numbers == ends[:, None]
        more_ms = np.where(broken_off, np.minimum(covered_ms, 1_000 - before_ms), np.maximum(covered_ms - before_ms, 0))
        filled_ms = np.where(there, more_ms, 0)
        before = values[rows, :, places].astype(np.float64)
        weights = np.where(np.isnan(before), 0, before_ms[:, None])
        sums = np.where(weights > 0, before, 0) * weights
        at, second = np.nonzero(numbers == newest)
        weights[at, :, second], sums[at, :, second] = self._weights[rows[at]], self._sums[rows[at]]
        known = ~np.isnan(figures)
        holds_both = known & ((filled_ms > 0) & ~broken_off & (numbers < newest))[:, None]
        weights, sums = np.where(holds_both, 0, weights), np.where(holds_both, 0, sums)
        more = known * np.where(holds_both, covered_ms[:, None], filled_ms[:, None])
        weights += more
        sums += np.where(known, figures, 0) * more
        self._weights[rows[at]], self._sums[rows[at]] = weights[at, :, second], sums[at, :, second]
        values[rows, :, places] = _average(sums, weights)
        covered[rows, places] = before_ms + filled_ms
        some = filled_ms.any(1)
        np.minimum.at(self._oldest, rows[some], numbers[some, (filled_ms[some] > 0).argmax(1)])
        return filled_ms

    def advance(self, row: int, second: int) -> None:
        """Open this second."""
        self._open(np.array([row]), np.array([second]))

    def minutes(self, rows: Ints, minutes: Ints) -> tuple[Ints, Floats]:
        """Return one minute of each row, by number: its coverage, int64 [n, 60], and figures, float32 [n, 4, 60].

        Seconds that are not there have no coverage. Figures without coverage are NaN.
        """
        places, newest = minutes % MINUTES, self._newest[rows, None]
        numbers = minutes[:, None] * MINUTE + np.arange(MINUTE)
        there = (numbers <= newest) & (numbers > np.maximum(newest - SECONDS, -1))
        covered: Ints = np.where(there, self._covered.reshape(-1, MINUTES, MINUTE)[rows, places].astype(np.int64), 0)
        figures: Floats = self._values.reshape(-1, FIGURES, MINUTES, MINUTE)[rows, :, places]
        if not covered.all():
            figures[np.broadcast_to(covered[:, None] == 0, figures.shape)] = np.nan
        return covered, figures

    def oldest(self, rows: Ints) -> Ints:
        """Return the first second of each row that may be known."""
        its: Ints = self._oldest[rows]
        return its

    def spreads(self, rows: Ints) -> list[Spreads]:
        """Compute nearest-rank percentiles and averages weighted by coverage, over 5, 10 and 30 minutes."""
        return [
            Spreads(length_s, covered_ms.tolist(), figures.tolist())
            for length_s, (covered_ms, figures) in zip(LENGTHS_S, self._spreads(rows), strict=True)
        ]

    def spread_columns(self, rows: Ints) -> tuple[Ints, Bools]:
        """Compute the same in integers, int64 [n, 3, 21], and which nodes are known completely.

        By length: the coverage in ms, then average and percentiles of each figure.
        """
        found = np.empty((len(rows), len(LENGTHS_S), 1 + FIGURES * (1 + len(PERCENTS))))
        for begin in range(0, len(rows), NODES_AT_ONCE):
            its, of = found[begin : begin + NODES_AT_ONCE], rows[begin : begin + NODES_AT_ONCE]
            for at, (covered_ms, figures) in enumerate(self._spreads(of)):
                its[:, at, 0] = covered_ms
                its[:, at, 1:] = figures.reshape(len(of), -1)
        known: Bools = np.asarray(~np.isnan(found).any((1, 2)))
        if not known.all():
            found[~known] = 0
        return np.rint(found).astype(np.int64), known

    def _spreads(self, rows: Ints) -> list[tuple[Ints, Floats]]:
        """Of each length: coverage [n], and per figure the average, then the percentiles [n, 4, 5]."""
        reach = int(np.minimum(self._newest[rows] - self._oldest[rows] + 1, SECONDS).max(initial=1))
        values, covered = self._latest(rows, reach)
        unknown = np.isnan(values)
        gaps = bool(unknown.any())  # rare: without gaps, half of the work is skipped
        weighted = (np.where(unknown, np.float32(0), values) if gaps else values) * covered[:, None, :]
        ranked = _ranked_with_gaps(values, unknown) if gaps else _ranked(values.view(np.int32))
        sums, covered_ms = np.zeros((len(rows), FIGURES)), np.zeros(len(rows), np.int64)
        known_ms = np.zeros((len(rows), FIGURES), np.int64)
        found: list[tuple[Ints, Floats]] = []
        for number, length_s in enumerate(LENGTHS_S):
            if number and reach <= LENGTHS_S[number - 1]:
                found.append(found[-1])
                continue
            # Seconds beyond the length before. All are whole numbers, so partial sums are exact.
            within = slice(-length_s, -LENGTHS_S[number - 1] if number else None)
            sums = sums + weighted[..., within].sum(-1, dtype=np.float64)
            covered_ms = covered_ms + covered[:, within].sum(-1, dtype=np.int64)
            if gaps:
                known_ms = known_ms + np.where(unknown[..., within], 0, covered[:, None, within]).sum(
                    -1, dtype=np.int64
                )
            else:
                known_ms = np.broadcast_to(covered_ms[:, None], sums.shape)
            averages = np.divide(sums, known_ms, out=np.full_like(sums, np.nan), where=known_ms > 0)
            found.append((covered_ms, np.concatenate([averages[..., None], ranked[number]], -1)))
        return found

    def _latest(self, rows: Ints, reach: int) -> tuple[Floats, Floats]:
        """Values and coverage of the last ``reach`` seconds, the newest last."""
        values = np.empty((len(rows), FIGURES, reach), np.float32)
        covered = np.zeros((len(rows), reach), np.float32)
        for at, (row, newest) in enumerate(zip(rows.tolist(), self._newest[rows].tolist(), strict=True)):
            end = newest % SECONDS + 1
            head = min(end, reach)
            values[at, :, reach - head :] = self._values[row, :, end - head : end]
            covered[at, reach - head :] = self._covered[row, end - head : end]
            if reach > head:
                values[at, :, : reach - head] = self._values[row, :, head - reach :]
                covered[at, : reach - head] = self._covered[row, head - reach :]
        nowhere = covered == 0
        if nowhere.any():
            values[np.broadcast_to(nowhere[:, None, :], values.shape)] = np.nan
        return values, covered

    def _open(self, rows: Ints, seconds: Ints) -> None:
        """Open these seconds if they are not; skipped ones have no coverage."""
        steps = seconds - self._newest[rows]
        later = steps > 0
        if not later.all():
            rows, seconds, steps = rows[later], seconds[later], steps[later]
        for at in np.nonzero((steps > 1) | (self._newest[rows] < 0))[0]:
            self._skip(int(rows[at]), int(seconds[at]))
        self._covered[rows, seconds % SECONDS] = 0
        self._sums[rows] = self._weights[rows] = 0.0
        self._newest[rows] = seconds

    def _skip(self, row: int, second: int) -> None:
        newest = int(self._newest[row])
        if newest < 0 or second - newest >= SECONDS:
            self._covered[row] = 0
            self._oldest[row] = second
            return
        slots = np.arange(newest + 1, second) % SECONDS
        self._covered[row, slots] = 0

    def _put(self, rows: Ints, seconds: Ints, weights_ms: Ints, figures: Floats) -> None:
        known = ~np.isnan(figures)
        weights = self._weights.take(rows, 0) + known * weights_ms[:, None]
        sums = self._sums.take(rows, 0) + np.where(known, figures, 0.0) * weights_ms[:, None]
        self._sums[rows], self._weights[rows] = sums, weights
        slots = seconds % SECONDS
        self._values[rows[:, None], _ALL, slots[:, None]] = _average(sums, weights)
        self._covered[rows, slots] = np.minimum(self._covered[rows, slots] + weights_ms, 1_000)

    def _put_whole(self, row: int, first: int, end: int, figures: Floats) -> None:
        """Seconds that one sample covers fully; ``add`` opens the last second."""
        first = max(first, end - SECONDS)
        self._open(np.array([row]), np.array([end - 1]))
        slots = np.arange(first, end) % SECONDS
        self._values[row][:, slots] = np.rint(figures)[:, None]
        self._covered[row, slots] = 1_000
        self._oldest[row] = min(int(self._oldest[row]), first)


def grown(array: NDArray[Any], rows: int, axis: int = 0) -> NDArray[Any]:
    """Return a copy with room for this many rows along an axis; unwritten rows take no memory."""
    before = array.shape[axis]
    more = np.zeros((*array.shape[:axis], rows, *array.shape[axis + 1 :]), array.dtype)
    more.swapaxes(0, axis)[:before] = array.swapaxes(0, axis)
    return more


def chained(parts: Sequence[Any]) -> Any:
    """Concatenate arrays or lists; of named tuples, each field."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, list):
        return list(chain.from_iterable(parts))
    return type(first)(*map(chained, zip(*parts, strict=True)))


def or_zero(values: Floats) -> Floats:
    """Replace NaN by 0. ``nan_to_num`` also checks infinities and takes five times as long."""
    found: Floats = np.where(np.isnan(values), 0.0, values)
    return found


def _average(sums: Floats, weights: Floats) -> Floats:
    return np.rint(np.divide(sums, weights, out=np.full_like(sums, np.nan), where=weights > 0))


def _ranked_with_gaps(values: Floats, unknown: Bools) -> list[Floats]:
    """The nearest ranks of the known values of each length."""
    found: list[Floats] = []
    for length_s in LENGTHS_S:
        ordered = np.sort(values[..., -length_s:], -1)  # NaN sorts last
        counts = ordered.shape[-1] - unknown[..., -length_s:].sum(-1)
        ranks = np.stack([np.maximum((counts * percent + 99) // 100 - 1, 0) for percent in PERCENTS], -1)
        found.append(np.take_along_axis(ordered, ranks, -1))
    return found


def _ranked(values: Ints) -> list[Floats]:
    """Rank without gaps; ``values``: the bits of non-negative floats, which sort in the same order and faster.

    NumPy sorts up to 512 numbers five times as fast, so longer runs are merged as far as the ranks need.
    """
    whole = [length_s for length_s in LENGTHS_S if values.shape[-1] >= length_s]
    newest = np.sort(values[..., -LENGTHS_S[0] :], -1)
    found = [newest[..., _ranks(newest.shape[-1])]]
    for length_s in LENGTHS_S[1:]:
        its = values[..., -length_s:]
        if length_s not in whole:
            ordered = np.sort(its, -1)
            found.append(ordered[..., _ranks(ordered.shape[-1])])
        elif length_s == SECONDS:
            found.append(_ranked_quarters(its))
        else:
            found.append(_ranked_halves(newest, its[..., : -LENGTHS_S[0]]))
    return [ranks.view(np.float32) for ranks in found]


def _ranked_halves(first: Ints, second: Ints) -> Ints:
    """Ranks of two runs of one length; the first one is sorted."""
    half = first.shape[-1]
    falling = second.copy()
    _sort_falling(falling)
    upper = np.sort(np.maximum(first, falling), -1)
    middle = np.minimum(first, falling).max(-1, keepdims=True)
    return np.concatenate([middle, upper[..., [rank - half for rank in _ranks(2 * half)[1:]]]], -1)


def _ranked_quarters(values: Ints) -> Ints:
    *shape, count = values.shape
    first = np.moveaxis(values.reshape(*shape, 4, -1), -2, 0).copy()
    first[:2].sort(-1)
    _sort_falling(first[2:])
    # Pair a sorted run with another reversed: the smaller of each pair form the lower half.
    second = np.empty((2, 2, *first.shape[1:]), first.dtype)
    np.minimum(first[:2], first[2:], out=second[:, 0])
    np.maximum(first[:2], first[2:], out=second[:, 1])
    second[0].sort(-1)
    _sort_falling(second[1])
    (lower, upper), (falling_lower, falling_upper) = second
    middle = np.maximum(np.minimum(lower, falling_upper), np.minimum(upper, falling_lower)).max(-1, keepdims=True)
    last = np.sort(np.maximum(upper, falling_upper), -1)
    before = count - last.shape[-1]
    return np.concatenate([middle, last[..., [rank - before for rank in _ranks(count)[1:]]]], -1)


def _sort_falling(values: Ints) -> None:
    """Sort in place, descending: NumPy reads reversed arrays slowly."""
    np.invert(values, out=values)
    values.sort(-1)
    np.invert(values, out=values)


def _ranks(count: int) -> list[int]:
    return [(count * percent + 99) // 100 - 1 for percent in PERCENTS]
