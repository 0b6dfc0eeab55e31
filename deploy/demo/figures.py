"""The demo's statistics. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from slacktide.schemas.outcome import NodeOutcome

REACTION_MS_MAX = 3_000
"""A step without a lower limit by then, or before the next step, counts as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A load step of the service on a node; ``until_ms``: the next step or the end."""

    node: str
    at_ms: int
    until_ms: int


def percentile(values: Iterable[float], pct: float) -> float | None:
    """Return the smallest value that at least ``pct`` percent of the values do not exceed; None: no values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * pct / 100) - 1)] if ordered else None


def reactions_ms(steps: Iterable[Step], cuts: Sequence[NodeOutcome]) -> list[int]:
    """Return the time from each answered step to the first lower limit from a sample since the step."""
    answered = []
    for step in steps:
        until_ms = min(step.until_ms, step.at_ms + REACTION_MS_MAX)
        acts = [
            cut.acted_ms
            for cut in cuts
            if cut.node == step.node and cut.observed_ms >= step.at_ms and step.at_ms <= cut.acted_ms <= until_ms
        ]
        if acts:
            answered.append(min(acts) - step.at_ms)
    return answered


def slowdown(p99s_ms: Collection[float], alone_p99s_ms: Collection[float]) -> float | None:
    """Return the ratio of medians over the blocks, against the service alone.

    The median of ratios would be worse: one bad reference would spoil its block.
    """
    return median(p99s_ms) / median(alone_p99s_ms) if p99s_ms and alone_p99s_ms else None
