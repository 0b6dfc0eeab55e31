"""Where outcomes wait until the log has them: written down before the act, gone on acknowledgement."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Protocol

from slacktide.schemas.outcome import NodeOutcome

Key = tuple[str, str, str]


class Spool(Protocol):
    """Intents and outcomes of one node. Never raises: acting does not wait for it, nor fail with it."""

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen, with the outcome that it is meant to have."""

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged; settles the intent with the same id, rule and target."""

    def interrupted(self) -> list[NodeOutcome]:
        """Intents without an outcome: what the last run began and did not end."""

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """The oldest outcomes not yet acknowledged, in order, each with its position."""

    def acknowledge(self, position: int) -> None:
        """The log has all outcomes up to and including this position."""


def key_of(outcome: NodeOutcome) -> Key:
    """What an intent and its outcome have in common."""
    return outcome.command_id, outcome.rule, outcome.target


class MemorySpool:
    """A spool of one process' life: for nodes that exist in memory only."""

    def __init__(self) -> None:
        self._intents: dict[Key, NodeOutcome] = {}
        self._pending: deque[tuple[int, NodeOutcome]] = deque()
        self._position = 0

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents[key_of(outcome)] = outcome

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        self._intents.pop(key_of(outcome), None)
        self._position += 1
        self._pending.append((self._position, outcome))

    def interrupted(self) -> list[NodeOutcome]:
        """Intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """The oldest outcomes not yet acknowledged, in order."""
        return list(islice(self._pending, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        while self._pending and self._pending[0][0] <= position:
            self._pending.popleft()
