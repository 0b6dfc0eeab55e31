"""A cluster's recorded use: arrays of nodes by time steps. What was not recorded is NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
"""Nodes by time steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """One resource of all nodes, in whole millicores or bytes."""

    capacity: Matrix
    reserved: Matrix
    """Capacity less allocatable."""
    node_used: Matrix
    """Of the node's root group; NaN where only pods are measured."""
    pods_used: Matrix
    low_used: Matrix
    """Of batch and free pods, a part of ``pods_used``."""
    exclusive_idle: Matrix
    """Of CPUs that pods have alone by the kubelet's static policy: nobody else can use it."""
    requested: Matrix
    """By pods other than batch and free that wait on the node or run."""
    max_used_request: Matrix
    """The larger of request and use of each such pod; NaN unless the policy needs it."""

    @property
    def high_used(self) -> Matrix:
        """What pods use that come before batch pods."""
        high: Matrix = np.maximum(self.pods_used - self.low_used, 0)
        return high

    @property
    def high_taken(self) -> Matrix:
        """The same, and what they keep from others without using it."""
        taken: Matrix = self.high_used + self.exclusive_idle
        return taken

    @property
    def kept(self) -> Matrix:
        """The larger of what the system uses and what is reserved for it."""
        system = np.maximum(self.node_used - self.pods_used, 0)
        kept: Matrix = np.fmax(system, self.reserved)
        return kept

    @property
    def known(self) -> NDArray[np.bool_]:
        """Where node and pods were both recorded."""
        known: NDArray[np.bool_] = ~np.isnan(self.capacity) & ~np.isnan(self.pods_used)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was recorded, on a regular grid of times."""

    nodes: Sequence[str]
    pools: Mapping[str, str]
    """By node; a node without a pool is not there."""
    start_s: int
    step_s: int
    window_s: int = 300
    """Over which CPU use is averaged."""
    cpu: Amounts
    mem: Amounts
    implausible: int
    """Node steps left out for a use above capacity."""
