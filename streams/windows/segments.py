"""A node's window out of the arrays, minute by minute, and into those of whoever takes the node over.

Seconds of node and system come back as they were, so that percentiles are the same. Pods come back by the slots of
their series; where those are longer than a minute (windows over half an hour), a slot goes with the minute that ends
it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from slacktide.schemas.window import NodeWindowSegment, PodSegment
from slacktide.streams.windows.node_window import NodeWindow
from slacktide.streams.windows.rings import Floats, Ints
from slacktide.streams.windows.series import Series
from slacktide.streams.windows.windows import Windows

MINUTE_MS = 60_000
_SECONDS = 60


def segment(windows: Windows, window: NodeWindow, minute: int, *, boot_id: str, seq: int) -> NodeWindowSegment | None:
    """One minute of event time, after it is over; None: nothing covers it.

    Args:
        windows: of the worker.
        window: the node's.
        minute: by number, since the epoch.
        boot_id: of the node's newest sample.
        seq: of the node's newest sample.

    """
    covered_ms, values = windows.rings.span(window.row, minute * _SECONDS, _SECONDS)
    if not any(covered_ms):
        return None
    begin_ms = minute * MINUTE_MS
    figures = [[None if value != value else int(value) for value in row] for row in values]  # noqa: PLR0124 - NaN
    return NodeWindowSegment(
        node=window.node,
        boot_id=boot_id,
        seq=seq,
        observed_ms=min(window.watermark_ms, begin_ms + MINUTE_MS),
        begin_ms=begin_ms,
        covered_ms=covered_ms,
        node_cpu_milli=figures[0],
        node_mem_bytes=figures[1],
        system_cpu_milli=figures[2],
        system_mem_bytes=figures[3],
        pods=_pods(windows.series, window, minute),
    )


def until(said: NodeWindowSegment, end_ms: int) -> NodeWindowSegment:
    """The part of a minute that is over by then: what comes of its rest nobody knows yet."""
    seconds = -(-(end_ms - said.begin_ms) // 1_000)
    if seconds >= len(said.covered_ms):
        return said
    return msgspec.structs.replace(
        said,
        covered_ms=said.covered_ms[:seconds],
        node_cpu_milli=said.node_cpu_milli[:seconds],
        node_mem_bytes=said.node_mem_bytes[:seconds],
        system_cpu_milli=said.system_cpu_milli[:seconds],
        system_mem_bytes=said.system_mem_bytes[:seconds],
    )


def restore(windows: Windows, window: NodeWindow, said: NodeWindowSegment) -> int:
    """Fill with a segment what nothing covers yet of its minute; how much that was, ms.

    A node of which nothing is known yet gets its time and its pods from it, too.
    """
    covered_ms = np.array(said.covered_ms, np.int64)
    figures = np.array(
        [said.node_cpu_milli, said.node_mem_bytes, said.system_cpu_milli, said.system_mem_bytes], np.float64
    )
    if window.listed is None and not window.uids:
        window.keep([pod.uid for pod in said.pods], windows.series)
    windows.advance(window, min(said.observed_ms, said.begin_ms + MINUTE_MS))
    filled_ms = windows.rings.fill_block(window.row, said.begin_ms // 1_000, covered_ms, figures)
    filled = int(filled_ms.sum())
    if filled and said.begin_ms + MINUTE_MS > window.watermark_ms - window.window_ms:
        _restore_own(windows.series, window, said.begin_ms, filled_ms, figures)
        _restore_pods(windows.series, window, said, filled / max(1, int(covered_ms.sum())))
    return filled


def _pods(series: Series, window: NodeWindow, minute: int) -> list[PodSegment]:
    slots = _slots(window, minute)
    if not window.rows or not len(slots):
        return []
    rows = np.fromiter(window.rows.values(), np.int64)
    cells = np.rint(series.cells(rows, slots % window.slots)).astype(np.int64)
    there = (slots > window.slot - window.slots) & (slots <= window.slot)
    cells[:, ~there] = 0
    totals = cells.sum(1)
    return [
        PodSegment(
            uid=uid,
            cpu_milli_ms=cpu,
            mem_bytes_ms=mem,
            cpu_ms=cpu_ms,
            mem_ms=mem_ms,
            parts=parts if len(slots) > 1 else [],
        )
        for uid, (cpu, mem, cpu_ms, mem_ms), parts in zip(
            window.rows, totals.tolist(), cells[:, :, [0, 2, 1, 3]].tolist(), strict=True
        )
        if cpu_ms or mem_ms
    ]


def _slots(window: NodeWindow, minute: int) -> Ints:
    """Numbers of the slots that go with a minute."""
    begin_ms, end_ms = minute * MINUTE_MS, (minute + 1) * MINUTE_MS
    if window.slot_ms <= MINUTE_MS:
        return np.arange(begin_ms // window.slot_ms, end_ms // window.slot_ms)
    ends_here = end_ms % window.slot_ms == 0
    return np.arange(end_ms // window.slot_ms - 1, end_ms // window.slot_ms) if ends_here else np.zeros(0, np.int64)


def _restore_own(series: Series, window: NodeWindow, begin_ms: int, filled_ms: Ints, figures: Floats) -> None:
    """Node, system and coverage, from the seconds. A second that is covered counts as one sample."""
    slots = (begin_ms + np.arange(len(filled_ms)) * 1_000) // window.slot_ms
    for number in np.unique(slots[filled_ms > 0]).tolist():
        if not window.slot - window.slots < number <= window.slot:
            continue
        inside = slots == number
        weights = np.where(np.isnan(figures[:, inside]), 0, filled_ms[inside])
        sums = (np.nan_to_num(figures[:, inside]) * weights).sum(1)
        known = weights.sum(1)
        cells = [
            [sums[0], sums[1], known[0], known[1]],
            [sums[2], sums[3], known[2], known[3]],
            [filled_ms[inside].sum(), (filled_ms[inside] > 0).sum(), 0, 0],
        ]
        series.add(np.array(window.own), np.full(3, number % window.slots), np.array(cells, np.float64))


def _restore_pods(series: Series, window: NodeWindow, said: NodeWindowSegment, share: float) -> None:
    kept = [pod for pod in said.pods if pod.uid in window.rows]
    if not kept:
        return
    rows = np.array([window.rows[pod.uid] for pod in kept])
    whole = [[[pod.cpu_milli_ms, pod.cpu_ms, pod.mem_bytes_ms, pod.mem_ms]] for pod in kept]
    parts = [pod.parts or one for pod, one in zip(kept, whole, strict=True)]
    if len({len(each) for each in parts}) > 1:
        parts = whole
    amounts = np.array(parts, np.float64)[:, :, [0, 2, 1, 3]] * share
    for slot, part, of_part in _shares(window, said.begin_ms, amounts.shape[1]):
        series.add(rows, np.full(len(rows), slot % window.slots), amounts[:, part] * of_part)


def _shares(window: NodeWindow, begin_ms: int, parts: int) -> list[tuple[int, int, float]]:
    """Into which slots of the window the parts of a minute go: slot, part, and how much of the part."""
    part_ms = MINUTE_MS // parts
    if window.slot_ms >= part_ms:
        found = [((begin_ms + part * part_ms) // window.slot_ms, part, 1.0) for part in range(parts)]
    else:
        each = part_ms // window.slot_ms
        first = begin_ms // window.slot_ms
        found = [(first + number, number // each, 1 / each) for number in range(parts * each)]
    return [one for one in found if window.slot - window.slots < one[0] <= window.slot]
