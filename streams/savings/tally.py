"""Sums a node's account in integers, so that the sums are exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Summed:
    """Adds field by field; fields that end in ``_max`` keep the maximum."""

    def add(self, other: Any) -> None:
        """Add another one of the same type."""
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Summed):
                mine.add(its)
            elif isinstance(mine, Counter):
                mine.update(its)
            else:
                setattr(self, one.name, max(mine, its) if one.name.endswith("_max") else mine + its)


@dataclass(slots=True)
class Use(Summed):
    """One resource: millicore-milliseconds, or byte-milliseconds."""

    used: int = 0
    admitted_least: int = 0
    admitted_likely: int = 0
    admitted_most: int = 0
    lost: int = 0
    """Use of pods until their eviction or restart, within the span."""
    room_left: int = 0
    """Room for native requests minus the requests of best-effort pods."""


@dataclass(slots=True)
class Level(Summed):
    """A pressure figure: hundredths of a percent, weighted by time."""

    weighted: int = 0
    time_ms: int = 0
    level_max: int = 0


@dataclass(slots=True)
class Harm(Summed):
    """The effect on latency-sensitive pods."""

    time_ms: int = 0
    ls_periods: int = 0
    ls_throttled: int = 0
    look_us: int = 0
    """Time with pressure measurements of latency-sensitive cgroups."""
    ls_stall_us: int = 0
    cpu_some: Level = field(default_factory=Level)
    mem_some: Level = field(default_factory=Level)
    mem_full: Level = field(default_factory=Level)
    io_some: Level = field(default_factory=Level)
    io_full: Level = field(default_factory=Level)


@dataclass(slots=True)
class Tally(Summed):
    """One node, or all."""

    samples: int = 0
    covered_ms: int = 0
    undecided: int = 0
    """Samples that were not counted: facts, pods or allocatable are unknown."""
    cpu: Use = field(default_factory=Use)
    mem: Use = field(default_factory=Use)
    evictions: int = 0
    restarts: int = 0
    busy: Harm = field(default_factory=Harm)
    """While best-effort pods ran."""
    idle: Harm = field(default_factory=Harm)
    """While they did not."""
    limit_ages_ms: Counter[int] = field(default_factory=Counter)
    """Ages from a sample to the resulting limit."""
    eviction_ages_ms: Counter[int] = field(default_factory=Counter)
