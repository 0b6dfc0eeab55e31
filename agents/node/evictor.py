"""Carries evictions out, and remembers them. Nothing is evicted yet: no eviction feature acts."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.agents.node.kernel import Reading
from slacktide.agents.node.protocol import Taken
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import Origin
from slacktide.schemas.sample import EvictState
from slacktide.streams.decisions.node_evict import Eviction

NOTHING_YET = EvictState()


class Evictor:
    """The one place that ends best-effort pods."""

    def state(self, now_ns: int) -> EvictState:  # noqa: ARG002
        """What the node remembers of evictions, at this monotonic instant."""
        return NOTHING_YET

    def saw(self, reading: Reading, pods: Sequence[Pod], now_ns: int) -> None:
        """The kernel was read: some who were dying may be gone; what best-effort pods got is remembered."""

    def carry_out(self, victims: Sequence[Eviction], taken: Taken, origin: Origin, reason: str) -> None:
        """Evict, as far as credit goes; with none left, hold the victims back."""
