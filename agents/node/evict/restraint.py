"""Steps that hold back victims that cannot be evicted: a CPU cut, then freezing; undone later. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FREEZE_AFTER_NS = 4_000_000_000
"""The CPU cut alone may be enough, and gets this much time."""
FREEZE_APART_NS = 900_000_000
"""About one per second; ticks are not exact."""
CALM_NS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Move:
    """One step, or its undoing."""

    kind: Literal["throttle", "freeze", "thaw", "lift"]
    uid: str = ""


class Restraint:
    """Keeps the steps taken, and decides the next ones."""

    def __init__(self) -> None:
        self.frozen: list[str] = []
        self.throttled = False
        self._throttled_ns = 0
        self._froze_ns: int | None = None
        self._starved_ns = 0
        self._spared: set[str] = set()

    def due(self, starved: Sequence[str], *, fed: bool, now_ns: int) -> list[Move]:
        """Return the next steps, in their order. ``starved``: uids in order; ``fed``: a victim was evicted."""
        if starved:
            self._starved_ns = now_ns
            return self._harder(starved, now_ns)
        if fed or now_ns - self._starved_ns >= CALM_NS:
            return self.undone()
        return []

    def undone(self) -> list[Move]:
        """Return all steps undone, the last one first."""
        self._spared.clear()
        return [Move("thaw", uid) for uid in reversed(self.frozen)] + [Move("lift")] * self.throttled

    def did(self, move: Move, now_ns: int) -> None:
        """Record a step that was taken."""
        if move.kind in {"throttle", "lift"}:
            self.throttled, self._throttled_ns = move.kind == "throttle", now_ns
        elif move.kind == "freeze":
            self.frozen.append(move.uid)
            self._froze_ns = now_ns
        else:
            self.frozen.remove(move.uid)

    def exhausted(self, now_ns: int) -> bool:
        """Return whether the CPU cut alone was given its time."""
        return self.throttled and now_ns - self._throttled_ns >= FREEZE_AFTER_NS

    def cannot(self, uid: str) -> None:
        """Record that a pod cannot be frozen, so that others are, until all steps are undone."""
        self._spared.add(uid)

    def _harder(self, starved: Sequence[str], now_ns: int) -> list[Move]:
        if not self.throttled:
            return [Move("throttle")]
        if not self.exhausted(now_ns):
            return []
        if self._froze_ns is not None and now_ns - self._froze_ns < FREEZE_APART_NS:
            return []
        running = (uid for uid in starved if uid not in self.frozen and uid not in self._spared)
        return [Move("freeze", uid) for uid in list(running)[:1]]
