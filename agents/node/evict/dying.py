"""Steps after SIGTERM: grace period, SIGKILL, repeated SIGKILL. Pure.

A pod evicted through the API is ended by the kubelet and only watched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KILL_AGAIN_NS = 5_000_000_000
STUCK_NS = 10_000_000_000
"""After the first SIGKILL, or after the kubelet's grace period. Processes that remain wait for the kernel, or
something restarts them."""

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
        """What to do now.

        Args:
            processes: how many are left; None: unknown.
            now_ns: the monotonic instant.

        """
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
        """Whether waiting for it no longer makes sense."""
        if self.kubelets:
            return now_ns - self.asked_ns >= self.grace_ns + STUCK_NS
        return self.first_killed_ns is not None and now_ns - self.first_killed_ns >= STUCK_NS

    def since_ms(self, now_ns: int) -> int:
        """Time since it was asked to end."""
        return (now_ns - self.asked_ns) // 1_000_000
