"""Tracks the eviction credit granted to and spent by one boot of a node, as far as it still counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

UNKNOWN = ""
"""The namespace of an eviction that only a later total shows."""


@dataclass(slots=True)
class Lease:
    """A granted total that the agent may still use."""

    granted: int
    spared: frozenset[str]
    over_ms: int
    """The time at which the lease has expired for every agent, by the governor's clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Reported evictions."""

    at_ms: int
    """The time of the report, which is after the evictions."""
    namespace: str
    count: int


class Ledger:
    """Credit of one boot. Evictions in a window are at most the grants in it minus those reported before it."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.spent: int | None = None
        """The highest reported total; None: none yet."""
        self.leases: list[Lease] = []
        self.seen: deque[Seen] = deque()
        self.granted_max = 0
        """The highest granted total, which bounds the spent credit."""

    @property
    def total(self) -> int:
        """Return the number of certain evictions."""
        return self.spent or 0

    @property
    def seen_count(self) -> int:
        """Return the number of reported evictions that still count."""
        return sum(one.count for one in self.seen)

    @property
    def empty(self) -> bool:
        """Return whether no lease and no eviction counts any more."""
        return not self.leases and not self.seen

    def outstanding(self, namespace: str | None = None) -> int:
        """Return the number of evictions granted and not reported, optionally in one namespace."""
        return max(0, max((one.granted for one in self._open_to(namespace)), default=0) - self.total)

    def lease(self, granted: int, spared: frozenset[str], over_ms: int) -> None:
        """Record a granted total, valid until ``over_ms``."""
        self.granted_max = max(self.granted_max, granted)
        for one in self.leases:
            if (one.granted, one.spared) == (granted, spared):
                one.over_ms = max(one.over_ms, over_ms)
                return
        self.leases.append(Lease(granted, spared, over_ms))

    def saw(self, total: int, now_ms: int, *, done: str | None = None) -> None:
        """Record the total that the agent reports.

        Args:
            total: since boot. A lower total is ignored, and the granted total bounds it.
            now_ms: when it was reported.
            done: the namespace, if the outcome itself is an eviction.
        """
        base = self.total
        total = min(total, self.granted_max)
        self.spent = max(base, total)
        more = total - base
        if more > 0 and done is not None:
            self.seen.append(Seen(now_ms, done, 1))
            more -= 1
        if more > 0:
            self.seen.append(Seen(now_ms, UNKNOWN, more))

    def end(self, now_ms: int) -> None:
        """End the leases: a newer boot exists."""
        for one in self.leases:
            one.over_ms = min(one.over_ms, now_ms)

    def forget(self, before_ms: int) -> None:
        """Drop leases and evictions that ended before that time."""
        self.leases = [one for one in self.leases if one.over_ms > before_ms]
        while self.seen and self.seen[0].at_ms <= before_ms:
            self.seen.popleft()

    def _open_to(self, namespace: str | None) -> Iterator[Lease]:
        return (one for one in self.leases if namespace is None or namespace not in one.spared)
