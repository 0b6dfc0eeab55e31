"""The windows of all nodes of a worker, in event time. Samples are merged in waves, in which each node occurs once.

The watermark of a node is the end of its newest sample. A sample at or before it is late: it only fills gaps
(``fill``). Memory is bounded: one ring per node, and one series per pod of its newest sample and pod list.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import compress

import msgspec
import numpy as np

from slacktide.schemas.inventory import Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.sample import NodeSample
from slacktide.streams.columns.rings import SECONDS, Bools, Floats, Ints, Rings, Spreads, grown, or_zero
from slacktide.streams.columns.series import CELLS, OWN, Marks, NodeWindow, Series

ROWS = 64
RING_MS = SECONDS * 1_000


class Arrival(msgspec.Struct, frozen=True):
    """A sample to merge into its node's window."""

    window: NodeWindow
    sample: NodeSample
    pods: Sequence[Pod] | None
    """The list that it names; None: unknown."""
    window_ms: int
    """The policy's; another length than before restarts the averages."""
    restarted: bool = False
    """The node has a new boot or clock epoch, so its time may have been set back."""


@dataclass(slots=True, kw_only=True)
class Wave:
    """Samples in time of many nodes, each node once, in columns: by node, or by pod."""

    nodes: Sequence[NodeWindow]
    rows: Ints
    ends_ms: Ints
    intervals_ms: Ints
    node: Floats
    """float64 [n, 2]: CPU in millicores and memory in bytes; NaN: unknown."""
    uids: Sequence[list[str]]
    """The pods with a use in each sample."""
    pods: Floats
    """float64 [N, 2]: the same figures of these pods, node by node."""
    counts: Ints
    """Pods of each sample."""
    of_pods: Floats
    """float64 [n, 2]: sums of the known figures."""
    listed: Sequence[Sequence[Pod] | None]
    """The pod list that each sample names; None: unknown."""
    groups: Callable[[int], AbstractSet[str]]
    """Returns the pods in the best-effort group, by the place of a node."""
    unsettled: Sequence[int] | None = None
    """Places of nodes whose windows may follow other lists; None: all."""


@dataclass(slots=True, frozen=True)
class Averages:
    """Averages over the policy's window, each over the time in which it is known."""

    covered_ms: int
    samples: int
    node: Use
    system: Use
    pods: list[list[float]]
    """CPU in millicores and memory in bytes of each in ``NodeWindow.kept``. NaN: unknown."""


@dataclass(slots=True, frozen=True)
class Found:
    """Averages of several nodes, one after the other, in order of their ``all_rows``."""

    values: Floats
    counts: list[list[float]]


def averages_of(window: NodeWindow, values: Floats, counts: Sequence[float]) -> Averages:
    """Return one node's averages; those of node and system are known.

    ``values``: float64 [S, 2], in order of its ``all_rows``. ``counts``: ms covered, and number of samples.
    """
    covered_ms, samples, *_ = counts
    node, system, _, *pods = values.tolist()
    return Averages(
        # All slots together may be slightly longer than the window.
        covered_ms=min(window.window_ms, round(covered_ms)),
        samples=round(samples),
        node=Use(cpu_milli=round(node[0]), mem_bytes=round(node[1])),
        system=Use(cpu_milli=round(system[0]), mem_bytes=round(system[1])),
        pods=pods,
    )


class Windows:
    """Keeps the state of all nodes. ``window`` assigns a node's row, ``drop`` recycles it."""

    def __init__(self) -> None:
        self.rings = Rings(ROWS)
        self.series = Series(ROWS * 8)
        self.marks = Marks(ROWS)
        self.system_milli = np.full(ROWS, np.nan)
        self._free = list(range(ROWS - 1, -1, -1))

    def window(self, node: str, window_ms: int) -> NodeWindow:
        """Create the window of a node."""
        if not self._free:
            rows = len(self.system_milli)
            self.rings.grow(2 * rows)
            self.marks.grow(2 * rows)
            self.system_milli = grown(self.system_milli, 2 * rows)
            self._free += range(2 * rows - 1, rows - 1, -1)
        own = self.series.take(OWN)
        window = NodeWindow(node, self._free.pop(), self.marks, own, all_rows=np.array(own, np.int64))
        self.marks.clear(window.row)
        self.marks.own[window.row] = own
        self.system_milli[window.row] = np.nan
        window.begin(window_ms, self.series)
        return window

    def drop(self, window: NodeWindow) -> None:
        """Recycle the row of a window."""
        window.gone = True
        self.rings.clear(window.row)
        self.series.give_back(window.all_rows.tolist())
        self._free.append(window.row)

    def merge(self, arrivals: Sequence[Arrival]) -> list[bool]:
        """Merge samples of different nodes; return False for late ones."""
        merged = [
            self.ready(arrival.window, arrival.sample.observed_ms, arrival.window_ms, restarted=arrival.restarted)
            for arrival in arrivals
        ]
        wave = [arrival for arrival, taken in zip(arrivals, merged, strict=True) if taken]
        if wave:
            self.merge_wave(_wave_of(wave))
        return merged

    def merge_wave(self, wave: Wave) -> None:
        """Merge samples whose windows are ready."""
        _Merge(self, wave).merge()

    def ready(self, window: NodeWindow, end_ms: int, window_ms: int, *, restarted: bool = False) -> bool:
        """Prepare a window for a sample; return False if the sample is late. Other arguments are as in ``Arrival``."""
        if restarted and end_ms <= window.watermark_ms:
            self.rings.clear(window.row)
            window.begin(window_ms, self.series)
            window.watermark_ms = window.minute = 0
        elif window_ms != window.window_ms:
            window.begin(window_ms, self.series)
        return end_ms > window.watermark_ms

    def fill(self, window: NodeWindow, sample: NodeSample) -> int:
        """Fill gaps from a late sample; return the milliseconds filled.

        Pods that are no longer kept, and time before the rings, do not count.
        """
        end_ms = min(sample.observed_ms, window.watermark_ms)
        begin_ms = max(sample.observed_ms - sample.interval_ms, window.watermark_ms - RING_MS, 0)
        own = _own(sample)
        values = np.array([*own, *((use.cpu_milli, use.mem_bytes) for use in sample.pod_use)], np.float64)
        place = window.rows
        rows = [*window.own[:2], *(place.get(use.uid, -1) for use in sample.pod_use)]
        filled_ms = 0
        for second in range(begin_ms // 1_000, -(-end_ms // 1_000)):
            piece_ms = min(end_ms, (second + 1) * 1_000) - max(begin_ms, second * 1_000)
            piece_ms = self.rings.fill(window.row, second, piece_ms, values[:2].ravel(), window.watermark_ms)
            filled_ms += piece_ms
            self._fill_slot(window, second * 1_000 // window.slot_ms, piece_ms, rows, values)
        if filled_ms:
            self._count(window, max(begin_ms, 0) // window.slot_ms, samples=1)
        return filled_ms

    def advance(self, window: NodeWindow, end_ms: int) -> None:
        """Advance a window's time; late samples may fill the gap."""
        if end_ms > window.watermark_ms:
            self.rings.advance(window.row, (end_ms - 1) // 1_000)
            self.open_slots([window], np.array([window.row]), np.array([end_ms]))
            window.watermark_ms = end_ms

    def open_slots(self, windows: Sequence[NodeWindow], rows: Ints, ends_ms: Ints) -> None:
        """Clear the slots that begin now."""
        marks = self.marks
        slots, before = (ends_ms - 1) // marks.slot_ms[rows], marks.slot[rows]
        later = np.nonzero(slots > before)[0]
        if not len(later):
            return
        opened: list[tuple[NodeWindow, int]] = []
        for at in later.tolist():
            window, slot, newest, count = windows[at], int(slots[at]), int(before[at]), int(marks.slots[rows[at]])
            if slot - newest >= count:
                self.series.clear(window.all_rows)
            else:
                for number in range(newest + 1, slot):
                    self.series.open(window.all_rows, np.full(len(window.all_rows), number % count))
                opened.append((window, slot % count))
        marks.slot[rows[later]] = slots[later]
        if opened:
            its = np.concatenate([window.all_rows for window, _ in opened])
            of = np.repeat([slot for _, slot in opened], [len(window.all_rows) for window, _ in opened])
            self.series.open(its, of)

    def averages(self, windows: Sequence[NodeWindow]) -> Found:
        """Return the averages of each window."""
        rows = np.concatenate([window.all_rows for window in windows])
        counts = self.series.totals(np.array([window.own[2] for window in windows])).tolist()
        return Found(self.series.averages(rows), counts)

    def spreads(self, windows: Sequence[NodeWindow]) -> list[Spreads]:
        """Compute percentiles of each node's last 5, 10 and 30 minutes."""
        return self.rings.spreads(np.array([window.row for window in windows]))

    def _fill_slot(self, window: NodeWindow, slot: int, weight_ms: int, rows: list[int], values: Floats) -> None:
        if not weight_ms or not window.slot - window.slots < slot <= window.slot:
            return
        there = np.array(rows) >= 0
        kept = np.array(rows)[there]
        amounts = np.empty((len(kept), CELLS))
        _amounts(values[there], np.full(len(kept), weight_ms), amounts)
        self.series.add(kept, np.full(len(kept), slot % window.slots), amounts)
        self._count(window, slot, covered_ms=weight_ms)

    def _count(self, window: NodeWindow, slot: int, *, covered_ms: int = 0, samples: int = 0) -> None:
        if window.slot - window.slots < slot <= window.slot:
            amounts = np.array([[covered_ms, samples, 0, 0]], np.float64)
            self.series.add(np.array([window.own[2]]), np.array([slot % window.slots]), amounts)


class _Merge:
    def __init__(self, windows: Windows, wave: Wave) -> None:
        self._windows, self._series = windows, windows.series
        self._wave, self._nodes = wave, wave.nodes
        self._rows, self._pods = wave.rows, wave.pods
        self._of = np.repeat(np.arange(len(wave.nodes)), wave.counts)
        self._figures = np.empty((len(wave.nodes), 4))
        self._figures[:, :2] = wave.node
        np.maximum(0, wave.node - wave.of_pods, out=self._figures[:, 2:])
        self._left_milli: list[tuple[int, float, bool]] = []

    def merge(self) -> None:
        wave, rows, marks = self._wave, self._rows, self._windows.marks
        begins_ms = np.maximum(np.maximum(wave.ends_ms - wave.intervals_ms, marks.watermark_ms[rows]), 0)
        ends = np.cumsum(wave.counts).tolist()
        self._follow(range(len(ends)) if wave.unsettled is None else wave.unsettled, ends)
        self._use_rows = np.concatenate([window.use_rows for window in self._nodes])
        self._series.use(self._use_rows, self._pods[:, 0])
        self._system(rows)
        self._windows.rings.add(rows, np.maximum(begins_ms, wave.ends_ms - RING_MS), wave.ends_ms, self._figures)
        self._windows.open_slots(self._nodes, rows, wave.ends_ms)
        self._add(begins_ms)
        marks.watermark_ms[rows] = wave.ends_ms

    def _follow(self, places: Sequence[int], ends: Sequence[int]) -> None:
        """Keep the series of current pods; note the pods whose start or end distorts system use."""
        wave = self._wave
        for at in places:
            window, uids, listed = self._nodes[at], wave.uids[at], wave.listed[at]
            if uids is not window.uids and uids != window.uids:
                its_end, interval_ms = int(wave.ends_ms[at]), int(wave.intervals_ms[at])
                if window.watermark_ms and its_end - interval_ms <= window.watermark_ms:
                    self._note_change(at, window, uids, self._pods[ends[at] - len(uids) : ends[at], 0])
                window.follow(partial(wave.groups, at), uids, listed, self._series)
            elif listed is not window.listed:
                window.follow(partial(wave.groups, at), uids, listed, self._series)

    def _note_change(self, at: int, window: NodeWindow, uids: Sequence[str], cpu_milli: Floats) -> None:
        now, before = set(uids), set(window.uids)
        gone = [row for uid, row in zip(window.uids, window.use_rows.tolist(), strict=True) if uid not in now]
        left = sum(or_zero(self._series.used(np.array(gone, np.int64))).tolist())
        unmeasured = np.isnan(cpu_milli)
        unknown = bool(unmeasured.any()) and not before.issuperset(compress(uids, unmeasured.tolist()))
        if left or unknown:
            self._left_milli.append((at, left, unknown))

    def _system(self, rows: Ints) -> None:
        """Compute system use: what no pod accounts for, at least 0.

        A pod that ended ran for part of the interval, with up to its former use. A pod that started without a known CPU
        use keeps system use where it was. Otherwise, system use would rise for a moment.
        """
        for at, left_milli, unknown in self._left_milli:
            milli, before_milli = float(self._figures[at, 2]), float(self._windows.system_milli[rows[at]])
            if before_milli < milli:  # False for NaN
                self._figures[at, 2] = before_milli if unknown else max(before_milli, milli - left_milli)
        self._windows.system_milli[rows] = self._figures[:, 2]

    def _add(self, begins_ms: Ints) -> None:
        """Add the samples' figures to the slots that they cover, one slot per node at a time."""
        ends_ms, rows, marks = self._wave.ends_ms, self._rows, self._windows.marks
        lengths_ms, newest, slots = marks.slot_ms[rows], marks.slot[rows], marks.slots[rows]
        oldest_ms = np.maximum((newest - slots + 1) * lengths_ms, ends_ms - marks.window_ms[rows])
        begins_ms = np.maximum(begins_ms, oldest_ms)
        left = np.nonzero(begins_ms < ends_ms)[0]
        while len(left):
            numbers = np.minimum(begins_ms[left] // lengths_ms[left], newest[left])
            until_ms = np.minimum(ends_ms[left], (numbers + 1) * lengths_ms[left])
            self._add_pieces(left, numbers % slots[left], until_ms - begins_ms[left], until_ms == ends_ms[left])
            begins_ms[left] = until_ms
            left = left[until_ms < ends_ms[left]]

    def _add_pieces(self, nodes: Ints, slots: Ints, weights_ms: Ints, lasts: Bools) -> None:
        pods, of, use_rows = self._pods, self._of, self._use_rows
        if len(nodes) < len(self._nodes):
            place = np.full(len(self._nodes), -1)
            place[nodes] = np.arange(len(nodes))
            there = place[of] >= 0
            pods, of, use_rows = pods[there], place[of[there]], use_rows[there]
        own, count = self._windows.marks.own[self._rows[nodes]], len(nodes)
        rows = np.concatenate([own[:, 0], own[:, 1], own[:, 2], use_rows])
        figures = self._figures[nodes]
        amounts = np.zeros((3 * count + len(pods), CELLS))
        _amounts(figures[:, :2], weights_ms, amounts[:count])
        _amounts(figures[:, 2:], weights_ms, amounts[count : 2 * count])
        amounts[2 * count : 3 * count, 0] = weights_ms
        amounts[2 * count : 3 * count, 1] = lasts & (self._wave.intervals_ms[nodes] > 0)
        _amounts(pods, weights_ms[of], amounts[3 * count :])
        self._series.add(rows, np.concatenate([slots, slots, slots, slots[of]]), amounts)


def _wave_of(arrivals: Sequence[Arrival]) -> Wave:
    samples = [arrival.sample for arrival in arrivals]
    cpu = [use.cpu_milli for sample in samples for use in sample.pod_use]
    mem = [use.mem_bytes for sample in samples for use in sample.pod_use]

    def groups(at: int) -> AbstractSet[str]:
        return {use.uid for use in samples[at].pod_use if use.best_effort_group}

    pods, uids = np.array([cpu, mem], np.float64).T, [[use.uid for use in sample.pod_use] for sample in samples]
    counts = np.array([len(its) for its in uids])
    of = np.repeat(np.arange(len(samples)), counts)
    of_pods = [np.bincount(of, or_zero(pods[:, figure]), minlength=len(samples)) for figure in range(2)]
    return Wave(
        nodes=[arrival.window for arrival in arrivals],
        rows=np.array([arrival.window.row for arrival in arrivals]),
        ends_ms=np.array([sample.observed_ms for sample in samples]),
        intervals_ms=np.array([sample.interval_ms for sample in samples]),
        node=np.array([[sample.use.cpu_milli, sample.use.mem_bytes] for sample in samples], np.float64),
        uids=uids,
        pods=pods,
        counts=counts,
        of_pods=np.stack(of_pods, 1),
        listed=[arrival.pods for arrival in arrivals],
        groups=groups,
    )


def _amounts(values: Floats, weights_ms: Ints, cells: Floats) -> None:
    """Fill cells with CPU and memory of a duration; NaN has no weight.

    ``values``: float64 [n, 2]. ``weights_ms``: int64 [n]. ``cells``: float64 [n, 4].
    """
    unknown = np.isnan(values)
    some = bool(unknown.any())
    for figure in range(2):  # by column: NumPy is slow with rows of two
        amounts, weights = values[:, figure], weights_ms
        if some:
            amounts = np.where(unknown[:, figure], 0.0, amounts)
            weights = np.where(unknown[:, figure], 0, weights)
        np.multiply(amounts, weights, out=cells[:, figure])
        cells[:, 2 + figure] = weights


def _own(sample: NodeSample) -> list[tuple[int | None, int | None]]:
    cpu_milli, mem_bytes = sample.use.cpu_milli, sample.use.mem_bytes
    pods_milli = sum(use.cpu_milli or 0 for use in sample.pod_use)
    pods_bytes = sum(use.mem_bytes or 0 for use in sample.pod_use)
    return [
        (cpu_milli, mem_bytes),
        (
            None if cpu_milli is None else max(0, cpu_milli - pods_milli),
            None if mem_bytes is None else max(0, mem_bytes - pods_bytes),
        ),
    ]
