"""What would be said over and over: of one cause there is one counted outcome a second."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from slacktide.schemas.outcome import NodeOutcome

SHARE_NS = 1_000_000_000


class Refusals:
    """Holds the first refusal of each cause back for a second, counting the rest."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, NodeOutcome]] = {}

    def add(self, outcome: NodeOutcome, now_ns: int) -> None:
        """Count one refusal; its cause is the outcome's reason."""
        since_ns, first = self._held.get(outcome.reason, (now_ns, None))
        counted = outcome if first is None else msgspec.structs.replace(first, count=first.count + 1)
        self._held[outcome.reason] = (since_ns, counted)

    def due(self, now_ns: int, *, everything: bool = False) -> list[NodeOutcome]:
        """Take out what was held long enough."""
        ripe = [cause for cause, (since_ns, _) in self._held.items() if everything or now_ns - since_ns >= SHARE_NS]
        return [self._held.pop(cause)[1] for cause in ripe]


class Paced:
    """Lets one thing of each kind be said a second, the first at once; the others count into the next one said."""

    def __init__(self) -> None:
        self._said: dict[Hashable, tuple[int, int]] = {}

    def count(self, kind: Hashable, now_ns: int) -> int:
        """For how many it stands, if it may be said now; else 0."""
        said_ns, unsaid = self._said.get(kind, (now_ns - SHARE_NS, 0))
        may = now_ns - said_ns >= SHARE_NS
        self._said[kind] = (now_ns, 0) if may else (said_ns, unsaid + 1)
        return unsaid + 1 if may else 0
