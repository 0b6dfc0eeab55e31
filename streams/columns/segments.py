"""Writes a node's window minute by minute, and restores it in the arrays of the next owner.

Seconds are restored exactly, so percentiles stay the same. Pods are restored by the slots of their series. A slot
longer than a minute (windows over 20 minutes) belongs to the minute in which it ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta, Raw
from numpy.typing import NDArray

from slacktide.schemas.bounds import Count
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.window import NodeWindowSegment, PodSegment
from slacktide.streams.columns.rings import FIGURES, MINUTE, MINUTES, Floats, Ints
from slacktide.streams.columns.series import CELLS, OWN, NodeWindow, Series
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


class Completed(NamedTuple):
    """A completed minute of a node, to write."""

    window: NodeWindow
    number: int
    """Of the minute since the epoch."""
    boot_id: str
    """Of the node's newest sample, as ``seq``."""
    seq: int


class _Minutes(NamedTuple):
    """Minutes of windows whose slots have one length, in arrays."""

    covered_ms: Ints
    """int64 [n, 60]"""
    figures: Floats
    """float32 [n, 4, 60]"""
    cells: Floats
    """float32 [N, k, 4]: the pods of all minutes, by part."""
    ends: list[int]
    """Where the pods of each minute end."""


def minutes_of(windows: Windows, window: NodeWindow, numbers: Sequence[int]) -> list[Minute]:
    """Return minutes of event time, by number since the epoch, without those that have no coverage."""
    its = _minutes(windows, [window] * len(numbers), numbers)
    return [
        Minute(
            begin_ms=number * MINUTE_MS,
            end_ms=_end_ms(window, number),
            covered_ms=its.covered_ms[at],
            figures=its.figures[at].astype(np.float64),
            uids=list(window.kept),
            pods=its.cells[end - len(window.kept) : end].astype(np.float64),
        )
        for at, (number, end) in enumerate(zip(numbers, its.ends, strict=True))
        if its.covered_ms[at].any()
    ]


def completed(windows: Windows, delays: Sequence[tuple[NodeWindow, int]]) -> list[range]:
    """Return each completed minute of these windows once, by number; several after a gap or a long sample.

    ``delays``: the windows, with the ms from a minute's end until it counts as completed.
    """
    rows, delays_ms = np.array([(window.row, delay_ms) for window, delay_ms in delays]).T
    marks = windows.marks
    ends = (marks.watermark_ms[rows] - delays_ms) // MINUTE_MS
    # The first minute that is in the rings completely, and may have coverage.
    oldest = np.maximum(windows.rings.oldest(rows) // MINUTE, marks.watermark_ms[rows] // MINUTE_MS - MINUTES + 1)
    firsts = np.maximum(marks.minute[rows], oldest)
    found = [range(first, end) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
    marks.minute[rows] = np.maximum(marks.minute[rows], ends)
    return found


class WrittenSegment(NodeWindowSegment, frozen=True, kw_only=True):
    """A segment whose facts and pod list stay encoded."""

    facts: Raw = Raw()  # type: ignore[assignment]
    listed: Raw = Raw()  # type: ignore[assignment]


def segments(windows: Windows, its: Sequence[Completed]) -> Iterator[WrittenSegment | None]:
    """Return the segment of each minute; None: it has no coverage."""
    lengths_ms = [one.window.slot_ms for one in its]
    of = {
        length_ms: _segments(windows, [one for one, its_ms in zip(its, lengths_ms, strict=True) if its_ms == length_ms])
        for length_ms in set(lengths_ms)
    }
    for length_ms in lengths_ms:
        yield next(of[length_ms])


def _segments(windows: Windows, its: Sequence[Completed]) -> Iterator[WrittenSegment | None]:
    minutes = _minutes(windows, [one.window for one in its], [one.number for one in its])
    covered, seconds, (sums, parts) = minutes.covered_ms.sum(1).tolist(), _seconds(minutes), _whole(minutes.cells)
    begin = 0
    for one, some, end, figures in zip(its, covered, minutes.ends, seconds, strict=True):
        if some:
            yield WrittenSegment(
                node=one.window.node,
                boot_id=one.boot_id,
                seq=one.seq,
                observed_ms=_end_ms(one.window, one.number),
                begin_ms=one.number * MINUTE_MS,
                covered_ms=figures[0],
                node_cpu_milli=figures[1],
                node_mem_bytes=figures[2],
                system_cpu_milli=figures[3],
                system_mem_bytes=figures[4],
                pods=_written(one.window.kept, sums[begin:end], parts[begin:end]),
            )
        else:
            yield None
        begin = end


def _end_ms(window: NodeWindow, number: int) -> int:
    return min(window.watermark_ms, (number + 1) * MINUTE_MS)


def _seconds(minutes: _Minutes) -> Iterator[list[list[Any]]]:
    """Return the coverage and figures of each minute, by second; None: unknown."""
    unknown = np.isnan(minutes.figures)
    whole = np.empty((len(unknown), 1 + FIGURES, MINUTE), np.int64)
    whole[:, 0], whole[:, 1:] = minutes.covered_ms, np.where(unknown, 0, minutes.figures)
    for at, lacks in enumerate(unknown.sum((1, 2)).tolist()):
        found = whole[at].tolist()
        if lacks:
            for row, second in zip(*(places.tolist() for places in np.nonzero(unknown[at])), strict=True):
                found[1 + row][second] = None
        yield found


def written_seconds(raw: bytes) -> WrittenSeconds:
    """Decode the seconds of a record; skip its pods if they are the last field, as segments are written.

    Raises BadMessageError if it cannot be decoded.
    """
    head, pods, _ = raw.partition(_PODS)
    if pods:
        with suppress(BadMessageError):
            return decode(head + b"}", WrittenSeconds)
    return decode(raw, WrittenSeconds)


def written_minute(written: WrittenSeconds, raw: bytes, window: NodeWindow) -> Minute:
    """Decode a minute for this window; its pods are skipped where the window does not reach back to it.

    Raises BadMessageError if its pods cannot be decoded.
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


def _minutes(windows: Windows, of: Sequence[NodeWindow], numbers: Sequence[int]) -> _Minutes:
    """Return one minute of each window; the length of their slots is the same."""
    rows, its, marks = np.array([window.row for window in of]), np.array(numbers), windows.marks
    counts = np.array([len(window.kept) for window in of])
    length_ms, newest, slots = of[0].slot_ms, marks.slot[rows, None], marks.slots[rows, None]
    ends_ms = (its[:, None] + 1) * MINUTE_MS
    parts = max(1, MINUTE_MS // length_ms)
    wanted = ends_ms // length_ms - parts + np.arange(parts)
    gone = (wanted <= newest - slots) | (wanted > newest) | (ends_ms % length_ms != 0)
    cells = windows.series.cells(
        np.concatenate([window.all_rows[OWN:] for window in of]), np.repeat(wanted % slots, counts, 0)
    )
    if gone.any():
        cells[np.repeat(gone, counts, 0)] = 0
    return _Minutes(*windows.rings.minutes(rows, its), cells, np.cumsum(counts).tolist())


def _whole(cells: Floats) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each pod's sums and parts in the order of a segment, as whole numbers; beyond 64 bits they stay floats."""
    parts = np.empty((cells.shape[1], len(cells), CELLS))
    for place, cell in enumerate(_WIRE_ORDER):  # by column, and by part: NumPy is slow with rows of four
        parts[:, :, place] = np.rint(cells[:, :, cell]).T
    if parts.sum(0).max(initial=0) < _INT64_END:
        whole: NDArray[Any] = parts.astype(np.int64)
        return whole.sum(0), whole.swapaxes(0, 1)
    fitting = np.vectorize(lambda cell: int(cell) if cell < _INT64_END else float(cell), otypes=[object])
    whole = fitting(parts)
    return fitting(whole.sum(0)), whole.swapaxes(0, 1)


def _written(uids: Sequence[str], sums: NDArray[Any], parts: NDArray[Any]) -> list[PodSegment]:
    in_parts: list[list[list[float]]] = parts.tolist() if parts.shape[1] > 1 else [[]] * len(parts)
    return [
        PodSegment(uid=uid, cpu_milli_ms=cpu, cpu_ms=cpu_ms, mem_bytes_ms=mem, mem_ms=mem_ms, parts=its)
        for uid, (cpu, cpu_ms, mem, mem_ms), its in zip(uids, sums.tolist(), in_parts, strict=True)
        if cpu_ms or mem_ms
    ]


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
