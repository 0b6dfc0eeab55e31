"""Pressure stall information (PSI) of one resource, as the kernel prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

_SPANS_S = (10, 60, 300)


@dataclass(slots=True)
class Stall:
    """Running averages of the stalled part of time, and its total."""

    averages: list[float] = field(default_factory=lambda: [0.0] * len(_SPANS_S))
    """The averages over 10, 60 and 300 s, 0 to 1."""
    total_us: int = 0

    def step(self, dt_ms: int, part: float) -> None:
        """Advance the clock; ``part`` (0 to 1) of the time was stalled."""
        for place, span_s in enumerate(_SPANS_S):
            kept = exp(-dt_ms / 1000 / span_s)
            self.averages[place] = self.averages[place] * kept + part * (1 - kept)
        self.total_us += int(part * dt_ms * 1000)

    @property
    def avg10_pct(self) -> float:
        """Return the percentage over the last 10 s, rounded to two digits as in the kernel."""
        return round(self.averages[0] * 100, 2)

    def line(self, kind: str) -> str:
        """Format one line of a pressure file, e.g. of kind ``some``."""
        figures = " ".join(f"avg{s}={avg * 100:.2f}" for s, avg in zip(_SPANS_S, self.averages, strict=True))
        return f"{kind} {figures} total={self.total_us}"
