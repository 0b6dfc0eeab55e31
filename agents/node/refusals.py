"""Merges repeated refusals: one counted outcome per cause and second."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from slacktide.schemas.outcome import NodeOutcome

SHARE_NS = 1_000_000_000


class Refusals:
    """Delays the first refusal of each cause by a second, and counts the others."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, NodeOutcome]] = {}

    def add(self, outcome: NodeOutcome, now_ns: int) -> None:
        """Count one refusal; its cause is the outcome's reason."""
        since_ns, first = self._held.get(outcome.reason, (now_ns, None))
        counted = outcome if first is None else msgspec.structs.replace(first, count=first.count + 1)
        self._held[outcome.reason] = (since_ns, counted)

    def due(self, now_ns: int, *, everything: bool = False) -> list[NodeOutcome]:
        """Take out the refusals that are due."""
        ripe = [cause for cause, (since_ns, _) in self._held.items() if everything or now_ns - since_ns >= SHARE_NS]
        return [self._held.pop(cause)[1] for cause in ripe]


class Paced:
    """Allows one outcome per kind and second, the first at once. The next one counts those skipped."""

    def __init__(self) -> None:
        self._reported: dict[Hashable, tuple[int, int]] = {}

    def count(self, kind: Hashable, now_ns: int) -> int:
        """Return the outcomes that this one stands for if it may be reported now; else 0."""
        reported_ns, skipped = self._reported.get(kind, (now_ns - SHARE_NS, 0))
        may = now_ns - reported_ns >= SHARE_NS
        self._reported[kind] = (now_ns, 0) if may else (reported_ns, skipped + 1)
        return skipped + 1 if may else 0
