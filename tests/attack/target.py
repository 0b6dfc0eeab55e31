"""A standing system under attack, and what must hold of it all the while."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from attack.system import System
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import COMMAND, SAMPLE
from testbed.history.answers import Name, name_of
from testbed.history.records import Entry, History, read_history
from testbed.one_machine import VirtualNode, eventually

DEADLINE_MS = 4_000
"""Of the agents' guard here: both cores may be busy with other tests."""
ROUNDS = 4
"""Samples of each honest node that must be answered after an attack."""
PATIENCE_S = 45.0
GROWS_MB_MAX = 160.0


@dataclass
class Target:
    """What an attack may use. The first node is honest to the end; others may be made to lie."""

    system: System
    dice: random.Random
    liars: set[str] = field(default_factory=set)
    """Nodes in whose names an attack has written; the invariants ask nothing of them."""
    forged: set[tuple[str, int, int]] = field(default_factory=set)
    """Places of records that look like a part's own and are an attack's."""
    forged_boots: set[str] = field(default_factory=set)
    """Of an honest node, and no agent's."""
    _rss_mb: dict[str, float] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)

    @property
    def honest(self) -> VirtualNode:
        """A node with a real agent, that must never notice."""
        return self.system.nodes[0]

    @property
    def victim(self) -> VirtualNode:
        """Another one, whose own agent is given bad input."""
        return self.system.nodes[1]

    def ghost(self) -> str:
        """A name that no node has."""
        name = f"ghost-{self.dice.randrange(1 << 32):x}"
        self.liars.add(name)
        return name

    def begin(self) -> None:
        """Remember how things are before an attack."""
        self._rss_mb = {part.name: part.rss_mb for part in self.system.parts}
        self._starts = {part.name: part.starts for part in self.system.parts}

    def assert_unharmed(self) -> None:
        """All processes live in bounded memory, and honest nodes are answered in time again.

        Raises:
            AssertionError: the attack worked.

        """
        since_ms = _now_ms()
        seen: list[str] = []

        def well() -> bool:
            nonlocal seen
            seen = self._unwell(since_ms)
            return not seen

        assert eventually(well, PATIENCE_S, every_s=0.5), f"{'; '.join(seen)}\n{self.system.described()}"
        for part in self.system.parts:
            assert part.running, f"{part.name} ended:\n{part.last_words()}"
            grown_mb = part.rss_mb - self._rss_mb.get(part.name, part.rss_mb)
            restarted = part.starts != self._starts.get(part.name)
            assert restarted or grown_mb < GROWS_MB_MAX, f"{part.name} grew by {grown_mb:.0f} MB"

    def _unwell(self, since_ms: int) -> list[str]:
        """Honest nodes whose newest samples are not all answered, or late."""
        history = self.recent(since_ms)
        answered: dict[Name, int] = {}
        for command in history.of(COMMAND, NodeCommand):
            answered.setdefault(name_of(command.body), command.at_ms)
        return [why for node in self.system.nodes if (why := _late(node.name, history.samples, answered))]

    def recent(self, since_ms: int) -> History:
        """Samples and answers since then."""
        records = self.system.in_test(lambda: read_history(self.system.bootstrap, (SAMPLE, COMMAND), since_ms))
        return History(records)

    def wait(self, holds: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
        """Wait for something.

        Raises:
            AssertionError: it does not come.

        """
        assert eventually(holds, within_s, every_s=0.5), f"{what}: not within {within_s:g} s\n{self.system.described()}"


def _late(node: str, samples: list[Entry[NodeSample]], answered: dict[Name, int]) -> str:
    """What is wrong with the last answers to a node; "" where nothing is. The newest sample may still wait."""
    own = [entry for entry in samples if entry.body.node == node][:-1][-ROUNDS:]
    if len(own) < ROUNDS:
        return f"{node}: {len(own)} samples of {ROUNDS}"
    missing = [entry.body.seq for entry in own if name_of(entry.body) not in answered]
    if missing:
        return f"{node}: no answer to {missing}"
    ages_ms = [answered[name_of(entry.body)] - entry.at_ms for entry in own]
    return f"{node}: answered after {max(ages_ms)} ms" if max(ages_ms) > DEADLINE_MS else ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
