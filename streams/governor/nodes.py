"""Stores the governor's state of one node: boots, liveness, lease and requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from slacktide.streams.governor.ledger import Ledger

GONE_MS = 30_000
"""A node lives if its metric was published or covered within this time. Workers do so every few seconds."""
ASKED_MS = 5_000
"""A refusal for lack of credit counts as a request for this time. Agents repeat it each second."""
AGAIN_MS = 2_000
"""A node that still requests credit this long after a grant has not read it. The grant is published again."""

NAMESPACES_MAX = 100
"""Limit for concurrent requests of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The lease of a node."""

    granted: int
    spared: frozenset[str]
    sent_ms: int
    ttl_ms: int


@dataclass(slots=True)
class Node:
    """A node's boots, liveness, lease and requests."""

    name: str
    ledger: Ledger
    """Ledger of its newest boot."""
    past: list[Ledger] = field(default_factory=list)
    """Ledgers of earlier boots that still count."""
    received_ms: int | None = None
    """The time at which its metric was last published, or covered by a heartbeat."""
    stale: bool = False
    """Whether its metric is stale."""
    held: Held | None = None
    waits_since_ms: int | None = None
    """The start of its unfulfilled request."""
    asked: dict[str, int] = field(default_factory=dict)
    """The time of the last request for credit, by namespace."""

    def ledgers(self) -> Iterator[tuple[str, Ledger]]:
        """Yield all ledgers that may count."""
        yield self.name, self.ledger
        for one in self.past:
            yield self.name, one

    def ledger_of(self, boot_id: str, now_ms: int) -> Ledger | None:
        """Return the ledger of a boot; a newer boot ends earlier ones. None: the boot is too old to count."""
        if boot_id > self.ledger.boot_id:
            self.ledger.end(now_ms)
            self.past.append(self.ledger)
            self.ledger, self.held = Ledger(boot_id), None
            self.asked, self.waits_since_ms = {}, None
        return self.ledger_at(boot_id)

    def ledger_at(self, boot_id: str) -> Ledger | None:
        """Return the ledger of a known boot; None: the boot is unknown."""
        return next((one for _, one in self.ledgers() if one.boot_id == boot_id), None)

    def forget(self, before_ms: int, now_ms: int) -> None:
        """Drop expired ledgers and requests."""
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
        """Return whether its metric is fresh."""
        return bool(self.asked) or (self.received_ms is not None and now_ms - self.received_ms < GONE_MS)

    def counts(self, now_ms: int) -> bool:
        """Return whether to keep the node."""
        return self.lives(now_ms) or self.in_time(now_ms) or not all(one.empty for _, one in self.ledgers())

    def cover(self, now_ms: int) -> None:
        """Mark the metric as covered by a heartbeat."""
        if self.received_ms is not None and not self.stale:
            self.received_ms = now_ms

    def ask(self, namespace: str, now_ms: int) -> None:
        """Store a request for credit in a namespace."""
        if namespace not in self.asked and len(self.asked) >= NAMESPACES_MAX:
            return
        self.asked[namespace] = now_ms
        if self.waits_since_ms is None:
            self.waits_since_ms = now_ms

    @property
    def holds(self) -> bool:
        """Return whether its lease has unspent credit."""
        return self.held is not None and self.held.granted > self.ledger.total

    @property
    def next_total(self) -> int:
        """Return the total of its next lease: one more eviction, or the unspent rest."""
        return max(self.ledger.total + 1, 0 if self.held is None else self.held.granted)

    def wants(self) -> bool:
        """Return whether its request was not granted, or the grant not read."""
        held = self.held
        if not self.asked or held is None or not self.holds:
            return bool(self.asked)
        unread = any(at_ms > held.sent_ms + AGAIN_MS for name, at_ms in self.asked.items() if name not in held.spared)
        return unread or self.asked.keys() <= held.spared

    def in_time(self, now_ms: int) -> bool:
        """Return whether its lease is valid."""
        return self.holds and self.held is not None and now_ms < self.held.sent_ms + self.held.ttl_ms

    def due(self, now_ms: int) -> bool:
        """Return whether its lease must be renewed."""
        return self.held is not None and now_ms >= self.held.sent_ms + self.held.ttl_ms // 2
