"""Steps after SIGTERM: grace period, SIGKILL, repeated SIGKILL. Pure. The kubelet's evictions are only watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KILL_AGAIN_NS = 5_000_000_000
STUCK_NS = 10_000_000_000
"""From the first SIGKILL, or the end of the kubelet's grace period, until remaining processes are reported as stuck."""

Due = Literal["nothing", "kill", "over"]


@dataclass(slots=True, kw_only=True)
class Dying:
    """One terminating pod."""

    grace_ns: int
    asked_ns: int
    kubelets: bool = False
    """Whether the kubelet ends it."""
    first_killed_ns: int | None = None
    last_killed_ns: int | None = None

    def due(self, processes: int | None, now_ns: int) -> Due:
        """Return what to do now. ``processes``: how many are left; None: unknown."""
        if processes == 0:
            return "over"
        if self.kubelets or now_ns - self.asked_ns < self.grace_ns:
            return "nothing"
        if self.last_killed_ns is not None and now_ns - self.last_killed_ns < KILL_AGAIN_NS:
            return "nothing"
        return "kill"

    def killed(self, now_ns: int) -> None:
        """SIGKILL was sent."""
        self.last_killed_ns = now_ns
        if self.first_killed_ns is None:
            self.first_killed_ns = now_ns

    def stuck(self, now_ns: int) -> bool:
        """Return whether waiting for it no longer makes sense."""
        if self.kubelets:
            return now_ns - self.asked_ns >= self.grace_ns + STUCK_NS
        return self.first_killed_ns is not None and now_ns - self.first_killed_ns >= STUCK_NS

    def since_ms(self, now_ns: int) -> int:
        """Return the time since its end was requested."""
        return (now_ns - self.asked_ns) // 1_000_000
