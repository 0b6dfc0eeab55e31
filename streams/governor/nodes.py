"""What the governor knows of one node: its boots, whether it lives, what it holds and what it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from slacktide.streams.governor.ledger import Ledger

GONE_MS = 30_000
"""A node whose metric was published or covered within this time lives: workers do either every few seconds."""
ASKED_MS = 5_000
"""So long a refusal for want of credit asks for one: agents repeat it each second."""
AGAIN_MS = 2_000
"""A node that asks so long after it was granted has not read it: it is published again."""

NAMESPACES_MAX = 100
"""For so many a node may ask at a time: more are no node's victims of one moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The lease that a node goes by, if it has read it."""

    granted: int
    spared: frozenset[str]
    sent_ms: int
    ttl_ms: int


@dataclass(slots=True)
class Node:
    """One node."""

    name: str
    ledger: Ledger
    """Of its newest boot."""
    past: list[Ledger] = field(default_factory=list)
    """Of earlier boots, as long as they count."""
    received_ms: int | None = None
    """When its metric was last published, or covered by a heartbeat."""
    stale: bool = False
    """By its metric the node is silent."""
    held: Held | None = None
    waits_since_ms: int | None = None
    """Since when it asks in vain."""
    asked: dict[str, int] = field(default_factory=dict)
    """For which namespaces, and when last."""

    def ledgers(self) -> Iterator[tuple[str, Ledger]]:
        """All that may count."""
        yield self.name, self.ledger
        for one in self.past:
            yield self.name, one

    def ledger_of(self, boot_id: str, now_ms: int) -> Ledger | None:
        """The ledger of a boot; a newer one ends those before it. None: of one so old that nothing of it counts."""
        if boot_id > self.ledger.boot_id:
            self.ledger.end(now_ms)
            self.past.append(self.ledger)
            self.ledger, self.held = Ledger(boot_id), None
            self.asked, self.waits_since_ms = {}, None
        return self.ledger_at(boot_id)

    def ledger_at(self, boot_id: str) -> Ledger | None:
        """The ledger of a boot that is known; None: of any other."""
        return next((one for _, one in self.ledgers() if one.boot_id == boot_id), None)

    def forget(self, before_ms: int, now_ms: int) -> None:
        """What was over by then does not count any more; what was asked long ago is not asked now."""
        if not self.ledger.empty:
            self.ledger.forget(before_ms)
        if self.past:
            for one in self.past:
                one.forget(before_ms)
            self.past = [one for one in self.past if not one.empty]
        if self.asked:
            self.asked = {name: at_ms for name, at_ms in self.asked.items() if at_ms > now_ms - ASKED_MS}
            self.waits_since_ms = self.waits_since_ms if self.asked else None

    def lives(self, now_ms: int) -> bool:
        """Whether its figures were read lately."""
        return bool(self.asked) or (self.received_ms is not None and now_ms - self.received_ms < GONE_MS)

    def counts(self, now_ms: int) -> bool:
        """Whether anything is to be remembered of it."""
        return self.lives(now_ms) or self.in_time(now_ms) or not all(one.empty for _, one in self.ledgers())

    def cover(self, now_ms: int) -> None:
        """By a heartbeat its metric still holds."""
        if self.received_ms is not None and not self.stale:
            self.received_ms = now_ms

    def ask(self, namespace: str, now_ms: int) -> None:
        """It would evict, and has no credit."""
        if namespace not in self.asked and len(self.asked) >= NAMESPACES_MAX:
            return
        self.asked[namespace] = now_ms
        if self.waits_since_ms is None:
            self.waits_since_ms = now_ms

    @property
    def holds(self) -> bool:
        """Whether something is left of what it was granted."""
        return self.held is not None and self.held.granted > self.ledger.total

    @property
    def next_total(self) -> int:
        """What a lease would grant: one eviction more, or what is left."""
        return max(self.ledger.total + 1, 0 if self.held is None else self.held.granted)

    def wants(self) -> bool:
        """Whether it asks for what it was not granted, or has not read."""
        held = self.held
        if not self.asked or held is None or not self.holds:
            return bool(self.asked)
        unread = any(at_ms > held.sent_ms + AGAIN_MS for name, at_ms in self.asked.items() if name not in held.spared)
        return unread or self.asked.keys() <= held.spared

    def in_time(self, now_ms: int) -> bool:
        """Whether the lease it holds is good."""
        return self.holds and self.held is not None and now_ms < self.held.sent_ms + self.held.ttl_ms

    def due(self, now_ms: int) -> bool:
        """Whether that lease is to be renewed."""
        return self.held is not None and now_ms >= self.held.sent_ms + self.held.ttl_ms // 2
