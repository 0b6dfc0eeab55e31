"""Running maxima, and confidence intervals of quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slacktide.streams.assess.usage import Matrix

DRAWS = 400
DAY_S, HOUR_S = 86_400, 3_600
DAYS_MIN = 3


def future_max(values: Matrix, steps: int) -> Matrix:
    """Return the maximum of each value and the next ``steps``; NaN only if all are."""
    found, covered, whole = values.copy(), 1, min(steps + 1, values.shape[1])
    while covered < whole:
        shift = min(covered, whole - covered)
        found[:, :-shift] = np.fmax(found[:, :-shift], found[:, shift:])
        covered += shift
    return found


def past_max(values: Matrix, steps: int) -> Matrix:
    """Return the maximum of each value and the previous ``steps``."""
    return future_max(values[:, ::-1], steps)[:, ::-1]


def block_s(steps: int, step_s: int) -> int:
    """Return the seconds per bootstrap block: a day, or an hour for less than three days."""
    return DAY_S if steps * step_s >= DAYS_MIN * DAY_S else HOUR_S


def spread(values: NDArray[np.float64], step_s: int, quantiles: Sequence[float]) -> list[float]:
    """Return half the width of each quantile's 95% interval, by a deterministic block bootstrap."""
    size = max(1, block_s(len(values), step_s) // step_s)
    blocks = [block for at in range(0, len(values), size) if not np.isnan(block := values[at : at + size]).all()]
    if not blocks:
        return [float("nan")] * len(quantiles)
    dice = np.random.default_rng(0)
    picks = dice.integers(len(blocks), size=(DRAWS, len(blocks)))
    drawn = np.array([np.nanquantile(np.concatenate([blocks[one] for one in pick]), quantiles) for pick in picks])
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return [float(half) for half in (high - low) / 2]
