"""What an agent needs of a node's kernel, whichever kernel it is: read it, and hold best-effort pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slacktide.schemas.inventory import Processor
from slacktide.schemas.sample import Limits, Missing, NodeUse, PodUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Rates since the previous reading, and the limit in force now."""

    interval_ms: int
    """Monotonic time since the previous reading; 0 for the first, whose rates are None."""
    use: NodeUse
    pod_use: list[PodUse]
    limits: Limits | None
    missing: list[Missing]


class Kernel(Protocol):
    """One node's kernel. Synchronous: all of it is a few hundred small file reads."""

    def read(self, mono_ns: int) -> Reading:
        """Read every figure once. Never raises for what is missing or malformed: it is in ``missing``."""

    def processors(self) -> list[Processor]:
        """CPUs that pods may run on, ascending; none where best-effort pods cannot be bound to CPUs."""

    def limits(self) -> Limits:
        """Read back what the best-effort group holds now.

        Raises:
            CgroupError: it cannot be read.

        """

    def hold(self, limits: Limits) -> None:
        """Make the best-effort group hold these limits; nothing else is ever touched.

        Raises:
            CgroupError: a write was refused; what was written before it stays.

        """
