"""Numbers of terminating and held pods on a node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How many pods are terminating or held back."""

    dying: int
    stuck: int
    frozen: int
    throttled: bool
    freezes: bool
