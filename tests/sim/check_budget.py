"""What all nodes together, and each for itself, may evict in any while: never more than the policy's budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.policies import BUDGET
from sim.trace import Trace

if TYPE_CHECKING:
    from sim.world import World


@dataclass(frozen=True, slots=True)
class Evicted:
    """One pod asked to go."""

    at_ms: int
    node: str
    outlasted: bool
    """By a lease that was over, with the log away: one to a node, beside the budget."""
    incarnation: int
    """Of the log: one that was made anew has forgotten what was spent before."""


class BudgetChecks:
    """Counts evictions by when they came to be, whatever governors and agents say of them."""

    def __init__(self, world: World, trace: Trace) -> None:
        self._world = world
        self._trace = trace
        self._recent: deque[Evicted] = deque()

    def evicts(self, node: str, *, outlasted: bool) -> None:
        """A pod is asked to go."""
        now_ms, log = self._world.timeline.now_ms, self._world.log
        self._recent.append(Evicted(now_ms, node, outlasted, log.incarnation))
        while self._recent[0].at_ms <= now_ms - BUDGET["intervalSeconds"] * 1_000:
            self._recent.popleft()
        paid = [one for one in self._recent if one.incarnation == log.incarnation and not one.outlasted]
        self._must(len(paid), BUDGET["clusterMax"], "more evictions than the cluster's budget", paid)
        mine = [one for one in paid if one.node == node]
        self._must(len(mine), BUDGET["nodeMax"], f"{node}: more evictions than a node's budget", mine)

    def _must(self, spent: int, most: int, why: str, evidence: list[Evicted]) -> None:
        if spent > most:
            self._trace.complain(why, *evidence)
