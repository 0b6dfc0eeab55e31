"""PURE: formats and parses each knob's file of cgroup v1 and v2. Bandwidth has two files on v1: see ``group_knobs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slacktide.agents.node.cgroup import parse
from slacktide.schemas.knob_table import KNOBS, PAGE_BYTES, SHARES_MAX, SHARES_MIN, Knob

_NO_LIMIT_BYTES = 1 << 62
"""Without a limit, cgroup v1 shows a number slightly below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFile:
    """One control file with one value."""

    controller: str
    name: str
    read: Callable[[bytes], int | None]
    """Raises ValueError for malformed text."""
    text: Callable[[int | None], str]


def weight_of(shares: int) -> int:
    """Return the v2 weight of v1 shares, by the kubelet's formula."""
    return 1 + (min(max(shares, SHARES_MIN), SHARES_MAX) - SHARES_MIN) * 9_999 // 262_142


def shares_of(weight: int) -> int:
    """Return the v1 shares of a v2 weight, by the kubelet's formula. An idle cgroup's weight is 0."""
    return SHARES_MIN + max(0, weight - 1) * 262_142 // 9_999


def as_reads_back(knob: Knob, value: int | None, version: int) -> int | None:
    """Return the value that reads back after a write: weights are coarser on v2, memory is rounded to pages."""
    unit = KNOBS[knob].unit
    if value is None:
        return None
    if unit == "shares":
        return min(max(value, SHARES_MIN), SHARES_MAX) if version == 1 else shares_of(weight_of(value))
    return value // PAGE_BYTES * PAGE_BYTES if unit == "bytes" else value


def _limit_v1(text: bytes) -> int | None:
    word = text.strip()
    if word == b"-1":  # a plain file of a simulated node keeps what was written
        return None
    if not word.isdigit() or len(word) > len(str(_NO_LIMIT_BYTES)):
        raise ValueError(f"malformed: {word[:40]!r} is not a number of bytes")
    return None if int(word) >= _NO_LIMIT_BYTES else int(word)


def _limit_v2(text: bytes) -> int | None:
    return None if text.strip() == b"max" else parse.number(text)


def _file(knob: Knob, version: int) -> KnobFile:
    row = KNOBS[knob]
    read: Callable[[bytes], int | None] = parse.number
    text: Callable[[int | None], str] = str
    if row.unit == "bytes":
        read, unlimited = (_limit_v1, "-1") if version == 1 else (_limit_v2, "max")
        text = lambda value: unlimited if value is None else str(value)  # noqa: E731 - the other texts are functions, too
    elif row.unit == "shares" and version == 2:
        read, text = lambda word: shares_of(parse.number(word)), lambda value: str(weight_of(value or 0))
    (name,) = row.files(version)
    return KnobFile(controller=row.controller, name=name, read=read, text=text)


FILES: Mapping[int, Mapping[Knob, KnobFile]] = {
    version: {
        knob: _file(knob, version) for knob, row in KNOBS.items() if row.files(version) and row.unit != "bandwidth"
    }
    for version in (1, 2)
}
"""By cgroup version. A version lacks the knobs not listed, except ``cfs_quota_us``."""
