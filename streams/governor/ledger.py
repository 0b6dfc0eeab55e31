"""What one boot of a node was granted and was seen to spend, as far as it still counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

UNKNOWN = ""
"""The namespace of an eviction that only a later total shows: it may have been any."""


@dataclass(slots=True)
class Lease:
    """A total that the agent may have gone by, or may still."""

    granted: int
    spared: frozenset[str]
    over_ms: int
    """From here on no agent goes by it, by the governor's clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Evictions that were reported."""

    at_ms: int
    """When: they were made before that, so that they count for no shorter than they must."""
    namespace: str
    count: int


class Ledger:
    """Of one boot. Evictions in a window are at most what was granted in it, less what was seen before it."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.spent: int | None = None
        """The highest total that was reported; None: none yet."""
        self.leases: list[Lease] = []
        self.seen: deque[Seen] = deque()
        self.granted_max = 0
        """The highest total that was granted to this boot: no more can have been spent."""

    @property
    def total(self) -> int:
        """What was certainly spent."""
        return self.spent or 0

    @property
    def seen_count(self) -> int:
        """Evictions reported that count."""
        return sum(one.count for one in self.seen)

    @property
    def empty(self) -> bool:
        """Nothing of it counts any more."""
        return not self.leases and not self.seen

    def outstanding(self, namespace: str | None = None) -> int:
        """Evictions, in the namespace if one is named, that were not reported: made, or still to be made."""
        return max(0, max((one.granted for one in self._open_to(namespace)), default=0) - self.total)

    def lease(self, granted: int, spared: frozenset[str], over_ms: int) -> None:
        """A total was granted; the agent goes by it until ``over_ms`` at the latest."""
        self.granted_max = max(self.granted_max, granted)
        for one in self.leases:
            if (one.granted, one.spared) == (granted, spared):
                one.over_ms = max(one.over_ms, over_ms)
                return
        self.leases.append(Lease(granted, spared, over_ms))

    def saw(self, total: int, now_ms: int, *, done: str | None = None) -> None:
        """The agent reports how much it has spent.

        Args:
            total: since the boot's start; one that is no higher than before adds nothing, and what is over all that
                was granted does not count.
            now_ms: when that was reported.
            done: the namespace, where this very outcome is of an eviction that was made.

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
        """The node has a newer boot: this one evicts no more."""
        for one in self.leases:
            one.over_ms = min(one.over_ms, now_ms)

    def forget(self, before_ms: int) -> None:
        """What was over by then does not count any more."""
        self.leases = [one for one in self.leases if one.over_ms > before_ms]
        while self.seen and self.seen[0].at_ms <= before_ms:
            self.seen.popleft()

    def _open_to(self, namespace: str | None) -> Iterator[Lease]:
        return (one for one in self.leases if namespace is None or namespace not in one.spared)
