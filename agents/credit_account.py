"""Eviction credit of this boot of the node. Pure: callers receive the leases."""

from __future__ import annotations

from slacktide.schemas.bounds import COUNT_MAX
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit

__all__ = ["NO_CREDIT", "CreditAccount"]

LAST = (COUNT_MAX, COUNT_MAX)
"""The highest possible position. After it the order of arrival decides."""


class CreditAccount:
    """The current lease and the credit spent. Call ``ready`` for each pod, then ``spend``."""

    def __init__(self, boot_id: str) -> None:
        self.spent = 0
        """Evictions since the agent's start."""
        self.epoch = 0
        """The highest governor epoch received."""
        self._boot_id = boot_id
        self._reserved = 0
        self._newest = (0, -1)
        self._granted = 0
        self._spared: frozenset[str] = frozenset()
        self._until_ns = 0
        self._away_since_ns: int | None = None
        self._outlasted = False

    def receive(self, credit: EvictionCredit, since_ns: int) -> None:
        """Use a lease of this node, for any of its boots, if it is newer than all before it.

        The lease counts from ``since_ns``, the last monotonic time before its arrival, so a delayed one ends in time.
        """
        if (credit.epoch, credit.number) <= self._newest != LAST:
            return
        self._newest = (credit.epoch, credit.number)
        self.epoch = credit.epoch
        if credit.boot_id == self._boot_id:
            # A bad record may count more evictions than there were; they give no credit.
            self._granted = min(credit.granted, self.spent + credit.granted - credit.spent)
            self._spared = frozenset(credit.spared_namespaces)
            self._until_ns = since_ns + credit.ttl_ms * 1_000_000
            self._outlasted = False

    def log_is(self, *, away: bool, now_ns: int) -> None:
        """Record whether Kafka is reachable. A lease that cannot be renewed may be used past its end."""
        if not away:
            self._away_since_ns = None
        elif self._away_since_ns is None:
            self._away_since_ns = now_ns

    def ready(self, now_ns: int, namespace: str) -> bool:
        """Return whether one more pod of the namespace may be evicted now."""
        if self.spent + self._reserved >= self._granted or namespace in self._spared:
            return False
        return now_ns < self._until_ns or self._outlasts

    def spend(self, now_ns: int) -> None:
        """Spend credit for a pod, before it is signalled."""
        self.spent += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def reserve(self, now_ns: int) -> None:
        """Reserve credit for a request to the API server. It is not reported as spent yet."""
        self._reserved += 1
        self._outlasted = self._outlasted or now_ns >= self._until_ns

    def settle(self, *, goes: bool) -> None:
        """Spend or release reserved credit. ``goes``: the pod was evicted, or may have been."""
        self._reserved -= 1
        self.spent += goes

    @property
    def _outlasts(self) -> bool:
        """Whether the lease was valid when Kafka became unreachable. Then it allows one eviction meanwhile."""
        return self._away_since_ns is not None and self._away_since_ns < self._until_ns and not self._outlasted
