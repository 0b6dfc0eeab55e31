"""The windows of all nodes of a worker, in event time. Samples are merged in waves: many nodes at once, each once.

The watermark of a node is the end of its newest sample; a sample at or before it comes too late, and can only fill
what nothing covers yet (``fill``). Memory is bounded: per node one ring, and series of no more pods than its newest
sample and its pod list name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from slacktide.schemas.inventory import Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.sample import NodeSample
from slacktide.streams.windows.node_window import OWN, NodeWindow
from slacktide.streams.windows.rings import SECONDS, Floats, Ints, Rings, Spreads, grown, or_zero
from slacktide.streams.windows.series import Series

ROWS = 64
RING_MS = SECONDS * 1_000


class Arrival(msgspec.Struct, frozen=True):
    """A sample on its way into its node's window."""

    window: NodeWindow
    sample: NodeSample
    pods: Sequence[Pod] | None
    """The list that it names; None: it is not known."""
    window_ms: int
    """The policy's; another length than before begins the averages anew."""
    restarted: bool = False
    """The node has a new boot or clock epoch, so that its time may have been set back."""


@dataclass(slots=True, frozen=True)
class Averages:
    """Over the policy's window, each over the time for which it is known."""

    covered_ms: int
    samples: int
    node: Use
    system: Use
    pods: list[list[float]]
    """CPU in millicores and memory in bytes of each in ``NodeWindow.kept``. NaN: not known."""


@dataclass(slots=True, frozen=True)
class Found:
    """Averages of several nodes, one after the other, in order of their ``all_rows``."""

    values: Floats
    counts: list[list[float]]

    def of(self, at: int, window: NodeWindow, values: Floats) -> Averages:
        """One of the nodes, by its place and its part of the values; node and system are known."""
        covered_ms, samples, *_ = self.counts[at]
        node, system, _, *pods = values.tolist()
        return Averages(
            # Slots may be a little longer together than the window.
            covered_ms=min(window.window_ms, round(covered_ms)),
            samples=round(samples),
            node=Use(cpu_milli=round(node[0]), mem_bytes=round(node[1])),
            system=Use(cpu_milli=round(system[0]), mem_bytes=round(system[1])),
            pods=pods,
        )


class Windows:
    """Nodes come with ``window`` and go with ``drop``; their places are used again."""

    def __init__(self) -> None:
        self.rings = Rings(ROWS)
        self.series = Series(ROWS * 8)
        self.system_milli = np.full(ROWS, np.nan)
        self._free = list(range(ROWS - 1, -1, -1))

    def window(self, node: str, window_ms: int) -> NodeWindow:
        """A place for a node."""
        if not self._free:
            rows = len(self.system_milli)
            self.rings.grow(2 * rows)
            self.system_milli = grown(self.system_milli, 2 * rows)
            self._free += range(2 * rows - 1, rows - 1, -1)
        own = self.series.take(OWN)
        window = NodeWindow(node, self._free.pop(), own, all_rows=np.array(own, np.int64))
        self.system_milli[window.row] = np.nan
        window.begin(window_ms, self.series)
        return window

    def drop(self, window: NodeWindow) -> None:
        """Its place is another's from now on."""
        self.rings.clear(window.row)
        self.series.give_back(window.all_rows.tolist())
        self._free.append(window.row)

    def merge(self, arrivals: Sequence[Arrival]) -> list[bool]:
        """Take in samples, each of another node, for the time since the one before it; False: it comes too late."""
        merged = [self._ready(arrival) for arrival in arrivals]
        wave = [arrival for arrival, taken in zip(arrivals, merged, strict=True) if taken]
        if wave:
            _Wave(self, wave).merge()
        return merged

    def fill(self, window: NodeWindow, sample: NodeSample) -> int:
        """Fill with a late sample what nothing covers yet of the seconds that it tells of; how much that was, ms.

        A pod that is kept no more is not counted; neither is what lies before the rings.
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
        """Time has come to this; what is in between may be filled later."""
        if end_ms > window.watermark_ms:
            self.rings.advance(window.row, (end_ms - 1) // 1_000)
            self.open_slots([window], [end_ms])
            window.watermark_ms = end_ms

    def open_slots(self, windows: Sequence[NodeWindow], ends_ms: Sequence[int]) -> None:
        """Begin the slots that time has come to."""
        opened: list[tuple[NodeWindow, int]] = []
        for window, end_ms in zip(windows, ends_ms, strict=True):
            slot = (end_ms - 1) // window.slot_ms
            if slot - window.slot >= window.slots:
                self.series.clear(window.all_rows)
            elif slot > window.slot:
                for number in range(window.slot + 1, slot):
                    self.series.open(window.all_rows, np.full(len(window.all_rows), number % window.slots))
                opened.append((window, slot % window.slots))
            window.slot = max(slot, window.slot)
        if opened:
            rows = np.concatenate([window.all_rows for window, _ in opened])
            slots = np.repeat([slot for _, slot in opened], [len(window.all_rows) for window, _ in opened])
            self.series.open(rows, slots)

    def averages(self, windows: Sequence[NodeWindow]) -> Found:
        """What is known of each window."""
        rows = np.concatenate([window.all_rows for window in windows])
        counts = self.series.totals(np.array([window.own[2] for window in windows])).tolist()
        return Found(self.series.averages(rows), counts)

    def spreads(self, windows: Sequence[NodeWindow]) -> list[Spreads]:
        """Percentiles of each node's last 5, 10 and 30 minutes."""
        return self.rings.spreads(np.array([window.row for window in windows]))

    def _ready(self, arrival: Arrival) -> bool:
        """See to it that the sample's place is there; False: it comes too late."""
        window, end_ms = arrival.window, arrival.sample.observed_ms
        if arrival.restarted and end_ms <= window.watermark_ms:
            self.rings.clear(window.row)
            window.begin(arrival.window_ms, self.series)
            window.watermark_ms = window.minute = 0
        elif arrival.window_ms != window.window_ms:
            window.begin(arrival.window_ms, self.series)
        return end_ms > window.watermark_ms

    def _fill_slot(self, window: NodeWindow, slot: int, weight_ms: int, rows: list[int], values: Floats) -> None:
        if not weight_ms or not window.slot - window.slots < slot <= window.slot:
            return
        there = np.array(rows) >= 0
        amounts = _amounts(values[there], np.full(int(there.sum()), weight_ms))
        kept = np.array(rows)[there]
        self.series.add(kept, np.full(len(kept), slot % window.slots), amounts)
        self._count(window, slot, covered_ms=weight_ms)

    def _count(self, window: NodeWindow, slot: int, *, covered_ms: int = 0, samples: int = 0) -> None:
        if window.slot - window.slots < slot <= window.slot:
            amounts = np.array([[covered_ms, samples, 0, 0]], np.float64)
            self.series.add(np.array([window.own[2]]), np.array([slot % window.slots]), amounts)


class _Wave:
    """One merge. Everything here is in order of the wave's nodes, or of their pods."""

    def __init__(self, windows: Windows, wave: Sequence[Arrival]) -> None:
        self._windows, self._series = windows, windows.series
        self._wave = wave
        self._nodes = [arrival.window for arrival in wave]
        self._left_milli: list[tuple[int, float, bool]] = []

    def merge(self) -> None:
        rows = np.array([window.row for window in self._nodes])
        ends_ms = np.array([arrival.sample.observed_ms for arrival in self._wave])
        begins_ms = np.array([_begin_ms(arrival) for arrival in self._wave])
        self._values()
        self._follow()
        self._system(rows)
        self._windows.rings.add(rows, begins_ms, ends_ms, self._figures)
        self._windows.open_slots(self._nodes, ends_ms.tolist())
        self._add()
        for arrival in self._wave:
            arrival.window.watermark_ms = arrival.sample.observed_ms

    def _values(self) -> None:
        """What the samples say, per node and per pod."""
        samples = [arrival.sample for arrival in self._wave]
        self._uids = [[use.uid for use in sample.pod_use] for sample in samples]
        self._cpu = [[use.cpu_milli for use in sample.pod_use] for sample in samples]
        cpu = [milli for each in self._cpu for milli in each]
        mem = [use.mem_bytes for sample in samples for use in sample.pod_use]
        self._pods = np.array([cpu, mem], np.float64).T
        self._of = np.repeat(np.arange(len(samples)), [len(each) for each in self._uids])
        self._figures = np.empty((len(samples), 4))
        self._figures[:, 0] = [sample.use.cpu_milli for sample in samples]
        self._figures[:, 1] = [sample.use.mem_bytes for sample in samples]

    def _follow(self) -> None:
        """Keep series of the pods that are there now; note whose coming or going blurs what the system used."""
        all_milli, begin = self._pods[:, 0], 0
        for at, (arrival, uids) in enumerate(zip(self._wave, self._uids, strict=True)):
            window, sample = arrival.window, arrival.sample
            if uids != window.uids:
                if window.watermark_ms and sample.observed_ms - sample.interval_ms <= window.watermark_ms:
                    self._note_change(at, window, uids)
                window.follow(sample, uids, arrival.pods, self._series)
            elif arrival.pods is not window.listed:
                window.follow(sample, uids, arrival.pods, self._series)
            window.cpu_milli = all_milli[begin : begin + len(uids)]
            begin += len(uids)

    def _note_change(self, at: int, window: NodeWindow, uids: list[str]) -> None:
        now, before = set(uids), set(window.uids)
        used = zip(window.uids, or_zero(window.cpu_milli).tolist(), strict=True)
        left = sum(milli for uid, milli in used if uid not in now)
        unknown = any(milli is None and uid not in before for uid, milli in zip(uids, self._cpu[at], strict=True))
        if left or unknown:
            self._left_milli.append((at, left, unknown))

    def _system(self, rows: Ints) -> None:
        """What no pod accounts for, and never less than nothing.

        A pod that has left was there for a part of the time, up to what it used before; one that has come with its
        CPU use not known yet leaves the system's where it was. Else either would pass for the system's for a moment.
        """
        of_pods = [np.bincount(self._of, or_zero(self._pods[:, of]), minlength=len(self._wave)) for of in range(2)]
        self._figures[:, 2] = np.maximum(0, self._figures[:, 0] - of_pods[0])
        self._figures[:, 3] = np.maximum(0, self._figures[:, 1] - of_pods[1])
        for at, left_milli, unknown in self._left_milli:
            milli, before_milli = float(self._figures[at, 2]), float(self._windows.system_milli[rows[at]])
            if before_milli < milli:  # neither is NaN then
                self._figures[at, 2] = before_milli if unknown else max(before_milli, milli - left_milli)
        self._windows.system_milli[rows] = self._figures[:, 2]

    def _add(self) -> None:
        """Add what the samples say to the slots that they cover, at most one of each node at a time."""
        ends = [arrival.sample.observed_ms for arrival in self._wave]
        todo = {at: self._first_ms(at) for at in range(len(ends))}
        todo = {at: begin_ms for at, begin_ms in todo.items() if begin_ms < ends[at]}
        while todo:
            pieces = []
            for at, begin_ms in list(todo.items()):
                window = self._nodes[at]
                slot = min(begin_ms // window.slot_ms, window.slot)
                end_ms = min(ends[at], (slot + 1) * window.slot_ms)
                pieces.append((at, slot % window.slots, end_ms - begin_ms, end_ms == ends[at]))
                todo[at] = end_ms
                if end_ms == ends[at]:
                    del todo[at]
            self._add_pieces(pieces)

    def _first_ms(self, at: int) -> int:
        window, sample = self._nodes[at], self._wave[at].sample
        end_ms = sample.observed_ms
        oldest_ms = max((window.slot - window.slots + 1) * window.slot_ms, end_ms - window.window_ms)
        return max(end_ms - sample.interval_ms, window.watermark_ms, oldest_ms, 0)

    def _add_pieces(self, pieces: list[tuple[int, int, int, bool]]) -> None:
        nodes = np.array([at for at, _, _, _ in pieces])
        slots, weights_ms = np.array([slot for _, slot, _, _ in pieces]), np.array([ms for _, _, ms, _ in pieces])
        pods, of = self._pods, self._of
        if len(pieces) < len(self._wave):
            place = np.full(len(self._wave), -1)
            place[nodes] = np.arange(len(nodes))
            there = place[of] >= 0
            pods, of = pods[there], place[of[there]]
        own = np.array([self._nodes[at].own for at, _, _, _ in pieces])
        rows = np.concatenate([own[:, 0], own[:, 1], own[:, 2], *(self._nodes[at].use_rows for at, _, _, _ in pieces)])
        figures = self._figures[nodes]
        counts = np.zeros((len(pieces), 4))
        counts[:, 0] = weights_ms
        counts[:, 1] = [last and self._wave[at].sample.interval_ms > 0 for at, _, _, last in pieces]
        amounts = [
            _amounts(figures[:, :2], weights_ms),
            _amounts(figures[:, 2:], weights_ms),
            counts,
            _amounts(pods, weights_ms[of]),
        ]
        self._series.add(rows, np.concatenate([slots, slots, slots, slots[of]]), np.concatenate(amounts))


def _begin_ms(arrival: Arrival) -> int:
    sample = arrival.sample
    end_ms = sample.observed_ms
    return max(end_ms - sample.interval_ms, arrival.window.watermark_ms, end_ms - RING_MS, 0)


def _amounts(values: Floats, weights_ms: Ints) -> Floats:
    """Cells of CPU and memory that were so for so long; NaN weighs nothing."""
    known = ~np.isnan(values)
    weights = known * weights_ms[:, None]
    found: Floats = np.concatenate([np.where(known, values, 0.0) * weights, weights], 1)
    return found


def _own(sample: NodeSample) -> list[tuple[int | None, int | None]]:
    """Node and system use of one sample."""
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
