"""Time-weighted average of one figure over a ring of slots."""

from __future__ import annotations

from array import array


class Series:
    """One figure of one thing: in each slot the sum of value x milliseconds, and the milliseconds.

    Where the figure was unknown the slot has no weight, so that it counts neither as 0 nor as anything else.
    """

    __slots__ = ("_sums", "_weights")

    def __init__(self, slots: int) -> None:
        self._sums = array("d", bytes(8 * slots))
        self._weights = array("d", bytes(8 * slots))

    def add(self, slot: int, value: int, weight_ms: int) -> None:
        """The figure was ``value`` for ``weight_ms`` of that slot."""
        self._sums[slot] += value * weight_ms
        self._weights[slot] += weight_ms

    def clear(self, slot: int) -> None:
        """The slot begins anew."""
        self._sums[slot] = self._weights[slot] = 0.0

    def covered_ms(self) -> int:
        """Time for which the figure is known."""
        return int(sum(self._weights))

    def average(self) -> int | None:
        """Average over the time for which it is known, rounded; None: it is not known at all."""
        weight_ms = sum(self._weights)
        return round(sum(self._sums) / weight_ms) if weight_ms else None
