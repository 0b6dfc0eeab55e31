"""The demo's statistics. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

REACTION_MS_MAX = 3_000
"""A step that no cut has answered by then, or before the next step, counts as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The service's load stepped up on a node; ``until_ms``: when the next step or the end came."""

    node: str
    at_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The best-effort limit was lowered in a node's kernel."""

    node: str
    observed_ms: int
    acted_ms: int


def percentile(values: Iterable[float], pct: float) -> float | None:
    """The smallest value that at least ``pct`` percent of all values do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * pct / 100) - 1)] if ordered else None


def reactions_ms(steps: Iterable[Step], cuts: Sequence[Cut]) -> list[int]:
    """For each step that was answered: time to the first lower limit that a later sample led to.

    A cut by a sample that was taken before the step is no answer to it.
    """
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
    """The ratio of the medians over the blocks: of a condition to the service alone.

    Not the median of the ratios: on a noisy machine one bad reference would spoil its whole block.
    """
    return median(p99s_ms) / median(alone_p99s_ms) if p99s_ms and alone_p99s_ms else None
