"""A cluster's recorded use in arrays of nodes by time steps (gaps are NaN), what it could offer, and running maxima."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from slacktide.schemas.policy.strategies import CalculatePolicy

Matrix: TypeAlias = NDArray[np.float64]
"""Nodes by time steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """One resource of all nodes, in whole millicores or bytes."""

    capacity: Matrix
    reserved: Matrix
    """Capacity minus allocatable."""
    node_used: Matrix
    """The use of the node's root cgroup; NaN if only pods are measured."""
    pods_used: Matrix
    low_used: Matrix
    """The use of batch and free pods, included in ``pods_used``."""
    exclusive_idle: Matrix
    """Idle part of CPUs that the kubelet's static policy assigns to single pods."""
    requested: Matrix
    """Requests of bound pods other than batch and free."""
    max_used_request: Matrix
    """The larger of request and use of each such pod; NaN unless the policy needs it."""

    @property
    def high_used(self) -> Matrix:
        """Use of pods that precede batch pods."""
        high: Matrix = np.maximum(self.pods_used - self.low_used, 0)
        return high

    @property
    def high_taken(self) -> Matrix:
        """Return the same plus idle exclusive CPUs."""
        taken: Matrix = self.high_used + self.exclusive_idle
        return taken

    @property
    def kept(self) -> Matrix:
        """Return the larger of system use and system reservation."""
        system = np.maximum(self.node_used - self.pods_used, 0)
        kept: Matrix = np.fmax(system, self.reserved)
        return kept

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return where node and pods were both recorded."""
        known: NDArray[np.bool_] = ~np.isnan(self.capacity) & ~np.isnan(self.pods_used)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The recording, at regular times."""

    nodes: Sequence[str]
    pools: Mapping[str, str]
    """The pool of each node; nodes without a pool are absent."""
    start_s: int
    step_s: int
    window_s: int = 300
    """The averaging window of CPU use."""
    cpu: Amounts
    mem: Amounts
    implausible: int
    """Node steps dropped for a use above capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A policy's terms for one resource."""

    reclaim_pct: int
    cap_pct: int | None
    policy: CalculatePolicy


def offered(amounts: Amounts, terms: Terms) -> Matrix:
    """Compute whole millicores or bytes per node and step; NaN for gaps."""
    kept = np.where(np.isnan(amounts.reserved), 0, amounts.reserved) if terms.policy == "request" else amounts.kept
    high = {"request": amounts.requested, "maxUsageRequest": amounts.max_used_request}.get(
        terms.policy, amounts.high_taken
    )
    margin = np.trunc(amounts.capacity * ((100 - terms.reclaim_pct) / 100))
    left: Matrix = np.maximum(amounts.capacity - margin - np.where(np.isnan(kept), 0, kept) - high, 0)
    cap_pct = 100 if terms.cap_pct is None else min(terms.cap_pct, 100)
    left = np.minimum(left, np.trunc(amounts.capacity * (cap_pct / 100)))
    result: Matrix = np.where(amounts.known, left, np.nan)
    return result


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
