"""A node's figures over time, in columns: encoded, rolled up to coarser resolutions, or gathered in a series. Pure.

A block is one node's 60 points of one resolution. Its columns are arrays of integers. ``NONE`` is unknown.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import sub
from typing import Literal

from slacktide.deploy.console.history.view import NONE, Series

POINTS = 60
STEPS_S = (1, 10, 60)
"""Resolutions, each a multiple of the previous one."""
Kind = Literal["level", "sum", "worst", "last"]
"""The content of a coarser point: the last value with minimum and maximum, the sum, the maximum, or the last value."""
_LEVELS = (
    "ls_cpu_milli", "be_cpu_milli", "system_cpu_milli", "used_cpu_milli", "used_mem_bytes", "be_mem_bytes",
    "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli", "requested_mem_bytes", "limit_cpu_milli",
    "cpu_some", "mem_some", "mem_full", "io_some", "io_full", "ls_stall_permille", "be_throttled_permille",
    "gained_cpu_milli", "age_ms", "decided_ms",
)  # fmt: skip
COUNTS = ("cuts", "raises", "bursts", "evictions", "skipped", "guarded")
_WORST = ("present", "state", "severity")
_LAST = (
    "capacity_cpu_milli", "capacity_mem_bytes", "ceiling_cpu_milli", "why", "policy", "boot", "seq", "origin",
    "sample_offset", "metric_offset", "allocatable_offset", "command_offset", "outcome_offset",
    "score_offset",
)  # fmt: skip
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_WORST, "worst"),
    **dict.fromkeys(_LEVELS, "level"),
    **dict.fromkeys(COUNTS, "sum"),
    **dict.fromkeys(_LAST, "last"),
}
FINE = tuple(_KINDS)
"""Columns of the finest resolution.

``present`` is 1 if the follower recorded the second. ``why``, ``policy`` and ``boot`` are text numbers. ``state`` and
``severity`` increase from good to bad. """
Block = list["array[int]"]
_HEAD = struct.Struct("<cq")
_CODES = ((1 << 7, "b"), (1 << 15, "h"), (1 << 31, "i"), (1 << 63, "q"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a coarser resolution."""

    name: str
    of: str
    """The column of the finest resolution."""
    how: str
    """last, min, max, sum or worst."""


COLUMNS = (
    *(Column(name, name, "last" if kind == "level" else kind) for name, kind in _KINDS.items()),
    *(Column(f"{name}.{how}", name, how) for name in _LEVELS for how in ("min", "max")),
)
"""Columns of coarser resolutions: the same, then minimum and maximum of each level."""

AT = {one.name: at for at, one in enumerate(COLUMNS)}
"""The index of each column in a block. The finest resolution has only those of ``FINE``."""


def empty(step_s: int) -> Block:
    """Return a block without points."""
    none = [NONE] * POINTS
    block = [array("q", none) for _ in (FINE if step_s == 1 else COLUMNS)]
    block[0] = array("q", [0]) * POINTS
    return block


def pack(block: Sequence[array[int]]) -> bytes:
    """Encode a block: per column the first value, and differences in the smallest sufficient integers."""
    pieces: list[bytes] = []
    for column in block:
        first = column[0]
        if column.count(first) == POINTS:
            pieces.append(_HEAD.pack(b"=", first))
            continue
        steps = list(map(sub, column[1:], column))
        most = max((*steps, -min(steps) - 1))
        code = next(code for below, code in _CODES if most < below)
        pieces += (_HEAD.pack(code.encode(), first), array(code, steps).tobytes())
    return zlib.compress(b"".join(pieces), 6)


def packed(block: Block) -> tuple[bytes, bytes | None]:
    """Encode the columns of the finest resolution, and the extremes: most queries need only the former."""
    return pack(block[: len(FINE)]), pack(block[len(FINE) :]) if len(block) > len(FINE) else None


def _columns(blob: bytes) -> Iterable[tuple[int, array[int] | None]]:
    raw, at = zlib.decompress(blob), 0
    while at < len(raw):
        code, first = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        if code == b"=":
            yield first, None
            continue
        steps = array(code.decode())
        size = (POINTS - 1) * steps.itemsize
        steps.frombytes(raw[at : at + size])
        at += size
        yield first, steps


def unpack(blob: bytes) -> Block:
    """Decode a block. Raises zlib.error, ValueError or struct.error if the bytes are invalid."""
    return [
        array("q", [first]) * POINTS if steps is None else array("q", accumulate(chain((first,), steps)))
        for first, steps in _columns(blob)
    ]


def point(blob: bytes, slot: int) -> list[int]:
    """Return one point of an encoded block, in column order; errors as for ``unpack``."""
    return [first if steps is None else first + sum(steps[:slot]) for first, steps in _columns(blob)]


def rolled(blocks: Sequence[Block | None], step_s: int, coarse_s: int) -> Block:
    """Roll up consecutive blocks (None: missing) of a node to one block of the next resolution."""
    each = coarse_s // step_s
    made = empty(coarse_s)
    sources = [AT[one.name if step_s > 1 else one.of] for one in COLUMNS]
    for number, block in enumerate(blocks):
        if block is None:
            continue
        for begin in range(0, POINTS, each):
            slot = (number * POINTS + begin) // each
            if any(block[0][begin : begin + each]):
                for place, one in enumerate(COLUMNS):
                    made[place][slot] = folded(one.how, block[sources[place]][begin : begin + each])
    return made


def folded(how: str, values: array[int]) -> int:
    """Aggregate the values of one span; NONE: all are unknown."""
    known = [value for value in values if value != NONE] if NONE in values else values
    if not known:
        return NONE
    if how == "last":
        return known[-1]
    if how == "min":
        return min(known)
    return sum(known) if how == "sum" else max(known)


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
        for one, column in zip(COLUMNS, self._columns, strict=True):
            source = block[AT[one.name if step_s > 1 else one.of]]
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
