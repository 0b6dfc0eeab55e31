"""What follows after a pod was asked to end: grace, SIGKILL, and again. Pure: takes what is seen, gives what is due.

Of a pod that was evicted through the API the kubelet takes care: it is only watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KILL_AGAIN_NS = 5_000_000_000
STUCK_NS = 10_000_000_000
"""After the first SIGKILL, or the end of the grace that the kubelet grants. Who is there still waits for the kernel, or
is started anew by somebody."""

Due = Literal["nothing", "kill", "over"]


@dataclass(slots=True, kw_only=True)
class Dying:
    """One pod on its way out."""

    grace_ns: int
    asked_ns: int
    kubelets: bool = False
    """The kubelet ends it."""
    first_killed_ns: int | None = None
    last_killed_ns: int | None = None

    def due(self, processes: int | None, now_ns: int) -> Due:
        """What is to be done now.

        Args:
            processes: how many are left; None: not known.
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
        """Whether nobody should wait for it any longer."""
        if self.kubelets:
            return now_ns - self.asked_ns >= self.grace_ns + STUCK_NS
        return self.first_killed_ns is not None and now_ns - self.first_killed_ns >= STUCK_NS

    def since_ms(self, now_ns: int) -> int:
        """How long ago it was asked to end."""
        return (now_ns - self.asked_ns) // 1_000_000
