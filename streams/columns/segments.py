"""Writes a node's window minute by minute, and restores it in the arrays of the next owner.

Seconds are restored exactly, so percentiles stay the same. Pods are restored by the slots of their series. A slot
longer than a minute (windows over 20 minutes) belongs to the minute in which it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Raw
from numpy.typing import NDArray

from slacktide.schemas.bounds import Count
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.window import NodeWindowSegment, PodSegment
from slacktide.streams.columns.node_window import OWN, NodeWindow
from slacktide.streams.columns.rings import MINUTE, MINUTES, Floats, Ints
from slacktide.streams.columns.series import CELLS, Series
from slacktide.streams.columns.windows import Windows

MINUTE_MS = MINUTE * 1_000
_WIRE_ORDER = [0, 2, 1, 3]
"""Converts between the order of a cell's figures and that of a segment."""
_PODS = b',"pods":['
_INT64_END = 2.0**63
_NO_PODS = np.zeros((0, 1, CELLS))

_Amount = Annotated[float, Meta(ge=0, le=2.0**80)]
"""Decoded as floats, which are faster to put into an array."""
_Figures = Annotated[list[_Amount | None], Meta(min_length=MINUTE, max_length=MINUTE)]
_Covered = Annotated[list[Annotated[float, Meta(ge=0, le=1_000)]], Meta(min_length=MINUTE, max_length=MINUTE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """One minute of a node, in arrays."""

    begin_ms: int
    end_ms: int
    covered_ms: Ints
    figures: Floats
    """By figure and second, as in the rings."""
    uids: list[str]
    pods: Floats
    """Of each pod, by part of the minute, the cells of its series."""


class WrittenSeconds(Message, frozen=True, kw_only=True):
    """The part of a ``NodeWindowSegment`` that fills the rings, without its pods: four fifths of the bytes."""

    node: str
    boot_id: str
    observed_ms: Count
    begin_ms: Annotated[int, Meta(ge=0, le=2**48, multiple_of=MINUTE_MS)]
    covered_ms: _Covered
    node_cpu_milli: _Figures
    node_mem_bytes: _Figures
    system_cpu_milli: _Figures
    system_mem_bytes: _Figures


class _WrittenPod(Message, frozen=True, kw_only=True):
    uid: str
    cpu_milli_ms: _Amount
    cpu_ms: _Amount
    mem_bytes_ms: _Amount
    mem_ms: _Amount
    parts: list[tuple[_Amount, _Amount, _Amount, _Amount]] = []


class _WrittenPods(Message, frozen=True, kw_only=True):
    pods: list[_WrittenPod] = []


def minute_of(windows: Windows, window: NodeWindow, number: int) -> Minute | None:
    """Return one minute of event time, by number since the epoch; None: it has no coverage."""
    covered_ms, figures = windows.rings.span(window.row, number * MINUTE, MINUTE)
    if not covered_ms.any():
        return None
    begin_ms = number * MINUTE_MS
    return Minute(
        begin_ms=begin_ms,
        end_ms=min(window.watermark_ms, begin_ms + MINUTE_MS),
        covered_ms=covered_ms,
        figures=figures,
        uids=list(window.kept),
        pods=_pods(windows.series, window, number),
    )


def oldest_minute(windows: Windows, window: NodeWindow) -> int:
    """Return the first minute that is in the rings completely and may have coverage."""
    oldest = windows.rings.oldest(window.row)
    return max(oldest // MINUTE, window.watermark_ms // MINUTE_MS - MINUTES + 1)


class WrittenSegment(NodeWindowSegment, frozen=True, kw_only=True):
    """A segment whose facts and pod list stay encoded."""

    facts: Raw = Raw()  # type: ignore[assignment]
    listed: Raw = Raw()  # type: ignore[assignment]


def segment(windows: Windows, window: NodeWindow, number: int, *, boot_id: str, seq: int) -> WrittenSegment | None:
    """Return the segment of one completed minute; None: it has no coverage.

    ``number``: of the minute since the epoch. ``boot_id`` and ``seq``: of the node's newest sample.
    """
    its = minute_of(windows, window, number)
    if its is None:
        return None
    figures = _whole_or_none(its.figures)
    return WrittenSegment(
        node=window.node,
        boot_id=boot_id,
        seq=seq,
        observed_ms=its.end_ms,
        begin_ms=its.begin_ms,
        covered_ms=its.covered_ms.tolist(),
        node_cpu_milli=figures[0],
        node_mem_bytes=figures[1],
        system_cpu_milli=figures[2],
        system_mem_bytes=figures[3],
        pods=_written(its),
    )


def _whole_or_none(figures: Floats) -> list[list[int | None]]:
    unknown = np.isnan(figures)
    if not unknown.any():
        return figures.astype(np.int64).tolist()  # type: ignore[no-any-return]
    found: list[list[int | None]] = np.where(unknown, 0, figures).astype(np.int64).tolist()
    for row, second in zip(*(places.tolist() for places in np.nonzero(unknown)), strict=True):
        found[row][second] = None
    return found


def written_seconds(raw: bytes) -> WrittenSeconds:
    """Decode the seconds of a record; skip its pods if they are the last field, as segments are written.

    Raises:
        BadMessageError: it cannot be decoded.
    """
    head, pods, _ = raw.partition(_PODS)
    if pods:
        with suppress(BadMessageError):
            return decode(head + b"}", WrittenSeconds)
    return decode(raw, WrittenSeconds)


def written_minute(written: WrittenSeconds, raw: bytes, window: NodeWindow) -> Minute:
    """Decode a minute for this window; its pods are skipped where the window does not reach back to it.

    Raises:
        BadMessageError: its pods cannot be decoded.
    """
    end_ms = min(written.observed_ms, written.begin_ms + MINUTE_MS)
    within = _within(window, written.begin_ms, max(window.watermark_ms, end_ms))
    pods = decode(raw, _WrittenPods).pods if within else []
    return Minute(
        begin_ms=written.begin_ms,
        end_ms=end_ms,
        covered_ms=np.array(written.covered_ms, np.int64),
        figures=np.array(
            [written.node_cpu_milli, written.node_mem_bytes, written.system_cpu_milli, written.system_mem_bytes],
            np.float64,
        ),
        uids=[pod.uid for pod in pods],
        pods=_read(pods),
    )


def restore(windows: Windows, minutes: Sequence[tuple[NodeWindow, Minute]]) -> None:
    """Fill the gaps of windows with minutes.

    A node without samples also takes its time and pods from them. The time of other nodes stays: later minutes precede
    a clock that was set back, or the next samples cover them.
    """
    for window, its in minutes:
        if window.listed is None and not window.uids:
            window.keep(its.uids, windows.series)
            windows.advance(window, its.end_ms)
    for turn in _turns(minutes):
        filled_ms = windows.rings.fill_minutes(
            np.array([window.row for window, _ in turn]),
            np.array([its.begin_ms // MINUTE_MS for _, its in turn]),
            np.array([its.end_ms // 1_000 for _, its in turn]),
            np.array([_until_now(window, its) for window, its in turn]),
            np.array([its.figures for _, its in turn]),
        )
        for (window, its), its_filled_ms in zip(turn, filled_ms, strict=True):
            if _within(window, its.begin_ms, window.watermark_ms) and its_filled_ms.any():
                _add(windows.series, window, its, its_filled_ms)


def _until_now(window: NodeWindow, its: Minute) -> Ints:
    if its.end_ms <= window.watermark_ms:
        return its.covered_ms
    seconds = its.begin_ms // 1_000 + np.arange(MINUTE)
    return np.where(seconds < window.watermark_ms // 1_000, its.covered_ms, 0)


def _within(window: NodeWindow, begin_ms: int, now_ms: int) -> bool:
    return begin_ms + MINUTE_MS > now_ms - window.window_ms


def _turns(minutes: Iterable[tuple[NodeWindow, Minute]]) -> list[list[tuple[NodeWindow, Minute]]]:
    """Split minutes into turns in which each place of the rings occurs once; usually one turn."""
    turns: list[list[tuple[NodeWindow, Minute]]] = []
    seen: dict[tuple[int, int], int] = {}
    for window, its in minutes:
        place = window.row, its.begin_ms // MINUTE_MS % MINUTES
        turn = seen[place] = seen.get(place, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append((window, its))
    return turns


def _pods(series: Series, window: NodeWindow, number: int) -> Floats:
    slots, count, newest = _slots_ended(window, number), window.slots, window.slot
    if not window.kept or not len(slots):
        return np.zeros((len(window.kept), 1, CELLS))
    cells = series.cells(window.all_rows[OWN:], slots % count)
    if slots[0] <= newest - count or slots[-1] > newest:
        cells[:, (slots <= newest - count) | (slots > newest)] = 0
    return cells


def _slots_ended(window: NodeWindow, number: int) -> Ints:
    begin_ms, end_ms = number * MINUTE_MS, (number + 1) * MINUTE_MS
    if window.slot_ms <= MINUTE_MS:
        return np.arange(begin_ms // window.slot_ms, end_ms // window.slot_ms)
    ends_here = end_ms % window.slot_ms == 0
    return np.arange(end_ms // window.slot_ms - 1, end_ms // window.slot_ms) if ends_here else np.zeros(0, np.int64)


def _written(its: Minute) -> list[PodSegment]:
    cells, sums = _whole(np.rint(its.pods[:, :, _WIRE_ORDER]))
    in_parts = cells.shape[1] > 1
    return [
        PodSegment(uid=uid, cpu_milli_ms=cpu, cpu_ms=cpu_ms, mem_bytes_ms=mem, mem_ms=mem_ms, parts=parts)
        for uid, (cpu, cpu_ms, mem, mem_ms), parts in zip(
            its.uids, sums.tolist(), cells.tolist() if in_parts else [[]] * len(cells), strict=True
        )
        if cpu_ms or mem_ms
    ]


def _whole(cells: Floats) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return cells and their sums as whole numbers; beyond 64 bits they stay floats."""
    sums = cells.sum(1)
    if sums.max(initial=0) < _INT64_END:
        whole = cells.astype(np.int64)
        return whole, whole.sum(1)
    fitting = np.vectorize(lambda cell: int(cell) if cell < _INT64_END else cell, otypes=[object])
    return fitting(cells), fitting(sums)


def _read(pods: Sequence[_WrittenPod]) -> Floats:
    """Return the cells of decoded pods; one part each where their numbers of parts differ."""
    if not pods:
        return _NO_PODS
    count = len(pods[0].parts)
    if count and all(len(pod.parts) == count for pod in pods):
        figures = chain.from_iterable(chain.from_iterable(pod.parts for pod in pods))
    else:
        figures = chain.from_iterable((pod.cpu_milli_ms, pod.cpu_ms, pod.mem_bytes_ms, pod.mem_ms) for pod in pods)
    return np.fromiter(figures, np.float64).reshape(len(pods), -1, CELLS)[:, :, _WIRE_ORDER]


def _add(series: Series, window: NodeWindow, its: Minute, filled_ms: Ints) -> None:
    """Add a minute to the averages, by slot: node, system and coverage from the seconds, pods by share filled."""
    count = max(1, MINUTE_MS // window.slot_ms)
    numbers = its.begin_ms // window.slot_ms + np.arange(count)
    there = (numbers > window.slot - window.slots) & (numbers <= window.slot)
    place = window.rows
    rows = np.array([place.get(uid, -1) for uid in its.uids], np.int64)
    share = filled_ms.reshape(count, -1).sum(1) / np.maximum(1, its.covered_ms.reshape(count, -1).sum(1))
    pods = its.pods[rows >= 0]
    if pods.shape[1] != count:
        pods = np.einsum("psc,st->ptc", pods, _overlaps(pods.shape[1], count))
    amounts = np.concatenate([_own(its.figures, filled_ms, count), pods * share[:, None]])
    series.add_block(np.concatenate([window.own, rows[rows >= 0]]), numbers[there] % window.slots, amounts[:, there])


def _own(figures: Floats, filled_ms: Ints, count: int) -> Floats:
    """Return cells by slot. A covered second counts as one sample."""
    known = ~np.isnan(figures)
    sums = (np.where(known, figures, 0) * filled_ms).reshape(2, 2, count, -1).sum(-1)
    weights = (known * filled_ms).reshape(2, 2, count, -1).sum(-1)
    counts = np.zeros((1, count, CELLS))
    counts[0, :, 0] = filled_ms.reshape(count, -1).sum(1)
    counts[0, :, 1] = (filled_ms > 0).reshape(count, -1).sum(1)
    return np.concatenate([np.concatenate([sums, weights], 1).transpose(0, 2, 1), counts])


@lru_cache(maxsize=64)
def _overlaps(parts: int, slots: int) -> Floats:
    """Return the share of each part of a minute in each of its slots."""
    part, slot = np.arange(parts)[:, None] / parts, np.arange(slots)[None, :] / slots
    shared = np.minimum(part + 1 / parts, slot + 1 / slots) - np.maximum(part, slot)
    found: Floats = np.maximum(shared, 0) * parts
    return found
