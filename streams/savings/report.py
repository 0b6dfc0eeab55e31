"""An account in hours, percent and milliseconds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from slacktide.streams.savings.offsets import Range
from slacktide.streams.savings.tally import Harm, Level, Tally, Use

HOUR_MS = 3_600_000
CORE_H, GIB_H = 1_000 * HOUR_MS, 2**30 * HOUR_MS
"""Millicore-milliseconds per core-hour, byte-milliseconds per GiB-hour."""
VERSION = 1


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, in core-hours or GiB-hours: ``gained = used - admitted`` and ``net = gained - lost``."""

    used: float
    admitted: float
    gained: float
    gained_least: float
    gained_most: float
    lost: float
    net: float
    net_least: float
    """The rest of ``gained_least``, if evicted pods lost all their work."""
    net_most: float
    """The rest of ``gained_most``, if evicted pods lost no work."""
    room_left: float
    """Room for native requests minus the requests of best-effort pods."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """PSI of the node over 10 s, percent; None: unknown."""

    mean_pct: float | None
    max_pct: float | None


class Suffered(msgspec.Struct, frozen=True, kw_only=True):
    """Pods outside the best-effort cgroup during a part of the time."""

    hours: float
    ls_throttled_pct: float | None
    """The throttled percentage of their CFS periods; None: no pod has a limit."""
    ls_stall_pct: float | None
    """Time in which one of their processes waited for CPU, by PSI; None: the policy does not use pressure."""
    cpu_some: Pressure
    mem_some: Pressure
    mem_full: Pressure
    io_some: Pressure
    io_full: Pressure


class Ages(msgspec.Struct, frozen=True, kw_only=True):
    """Monotonic time from a sample to the confirmed write: nearest-rank percentiles, milliseconds."""

    acts: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One node, or all."""

    node: str
    samples: int
    undecided: int
    """Samples that were not counted: facts, pods or allocatable are unknown."""
    covered_h: float
    """Node-hours covered by samples."""
    cpu: Saved
    """Core-hours."""
    mem: Saved
    """GiB-hours."""
    evictions: int
    restarts: int
    busy: Suffered
    """While best-effort pods used at least 1% of allocatable CPU."""
    idle: Suffered
    """The rest of the time."""
    limits: Ages
    evicting: Ages


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The complete report. ``read`` identifies its input."""

    version: int = VERSION
    since_ms: int
    until_ms: int
    all: NodeReport
    nodes: Sequence[NodeReport]
    only: Sequence[str]
    """The selected nodes; empty: all."""
    read: Sequence[Range]
    refused: int
    """Invalid records."""
    unproven: int
    """Samples that failed the node proof."""


class Span(NamedTuple):
    """The selection: UTC epoch milliseconds, end exclusive; no nodes: all."""

    since_ms: int
    until_ms: int
    nodes: tuple[str, ...] = ()


def report(tallies: Mapping[str, Tally], span: Span, read: Sequence[Range], *, refused: int, unproven: int) -> Report:
    """Convert sums to units."""
    everything = Tally()
    for tally in tallies.values():
        everything.add(tally)
    return Report(
        since_ms=span.since_ms,
        until_ms=span.until_ms,
        only=span.nodes,
        all=_node("all", everything),
        nodes=[_node(name, tally) for name, tally in tallies.items()],
        read=read,
        refused=refused,
        unproven=unproven,
    )


def _node(name: str, tally: Tally) -> NodeReport:
    return NodeReport(
        node=name,
        samples=tally.samples,
        undecided=tally.undecided,
        covered_h=tally.covered_ms / HOUR_MS,
        cpu=_saved(tally.cpu, CORE_H),
        mem=_saved(tally.mem, GIB_H),
        evictions=tally.evictions,
        restarts=tally.restarts,
        busy=_suffered(tally.busy),
        idle=_suffered(tally.idle),
        limits=_ages(tally.limit_ages_ms),
        evicting=_ages(tally.eviction_ages_ms),
    )


def _saved(use: Use, unit: int) -> Saved:
    gained, least, most = (use.used - part for part in (use.admitted_likely, use.admitted_most, use.admitted_least))
    return Saved(
        used=use.used / unit,
        admitted=use.admitted_likely / unit,
        gained=gained / unit,
        gained_least=least / unit,
        gained_most=most / unit,
        lost=use.lost / unit,
        net=(gained - use.lost) / unit,
        net_least=(least - use.lost) / unit,
        net_most=most / unit,
        room_left=use.room_left / unit,
    )


def _suffered(harm: Harm) -> Suffered:
    return Suffered(
        hours=harm.time_ms / HOUR_MS,
        ls_throttled_pct=100 * harm.ls_throttled / harm.ls_periods if harm.ls_periods else None,
        ls_stall_pct=100 * harm.ls_stall_us / harm.look_us if harm.look_us else None,
        cpu_some=_pressure(harm.cpu_some),
        mem_some=_pressure(harm.mem_some),
        mem_full=_pressure(harm.mem_full),
        io_some=_pressure(harm.io_some),
        io_full=_pressure(harm.io_full),
    )


def _pressure(level: Level) -> Pressure:
    if not level.time_ms:
        return Pressure(mean_pct=None, max_pct=None)
    return Pressure(mean_pct=level.weighted / level.time_ms / 100, max_pct=level.level_max / 100)


def _ages(ages_ms: Counter[int]) -> Ages:
    acts = ages_ms.total()
    if not acts:
        return Ages(acts=0, p50_ms=None, p95_ms=None, p99_ms=None, max_ms=None)
    p50, p95, p99 = (_percentile(ages_ms, acts, percent) for percent in (50, 95, 99))
    return Ages(acts=acts, p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=max(ages_ms))


def _percentile(counts: Counter[int], number: int, percent: int) -> int:
    rank, seen = -(-number * percent // 100), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    raise AssertionError(counts)
