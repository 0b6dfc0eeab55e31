"""A cluster's recorded use, in arrays of nodes by time steps. Gaps are NaN."""

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
