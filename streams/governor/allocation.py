"""Who gets what there is room for. First who asked, then a standing credit for each node, while that leaves half."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.streams.governor.nodes import Held, Node
from slacktide.streams.governor.use import Use


def certain_ms(ttl_ms: int) -> int:
    """How long after it was granted a lease of this time is certainly over."""
    return ttl_ms * 4 // 3


@dataclass(slots=True, kw_only=True)
class Round:
    """One allocation."""

    nodes: Collection[Node]
    budget: EvictionBudget
    now_ms: int
    sure: bool
    """Whether all is known that earlier governors granted; until then what they granted is renewed, no more."""
    granted: int = 0
    """Credits that were not outstanding before."""

    def run(self) -> Iterator[Node]:
        """Enter leases; yields each node that got one."""
        use = Use((one for node in self.nodes for one in node.ledgers()), self.budget)
        for node in sorted((node for node in self.nodes if node.wants()), key=self._first_served):
            if self._offered(node, use):
                yield node
        if not (use.cluster >= self.budget.cluster_max and any(node.wants() for node in self.nodes)):
            yield from self._standing(use)

    def _first_served(self, node: Node) -> tuple[int, int, str]:
        made = sum(ledger.seen_count for _, ledger in node.ledgers())
        return made, node.waits_since_ms or 0, node.name

    def _standing(self, use: Use) -> Iterator[Node]:
        """One credit for each who asks for nothing, as long as half of the budget stays for those who will."""
        silent = [node for node in self.nodes if not node.asked]
        idle = sum(node.ledger.outstanding() for node in silent if node.ledger.leases and not node.lives(self.now_ms))
        for node in self._in_turn([node for node in silent if node.lives(self.now_ms)]):
            idle += max(node.ledger.outstanding(), node.next_total - node.ledger.total)
            if idle > self.budget.cluster_max // 2:
                return
            if (node.due(self.now_ms) or not node.in_time(self.now_ms)) and self._offered(node, use):
                yield node
            if idle == self.budget.cluster_max // 2:
                return

    def _in_turn(self, nodes: Collection[Node]) -> Iterator[Node]:
        """Who holds a lease keeps it; the others, who are many, are put in order only where there is room for one."""
        yield from sorted((node for node in nodes if node.in_time(self.now_ms)), key=self._first_served)
        yield from sorted((node for node in nodes if not node.in_time(self.now_ms)), key=self._first_served)

    def _offered(self, node: Node, use: Use) -> bool:
        """Enter a lease for the node if there is room for what it asks."""
        granted = node.next_total
        more = use.added(node.ledger, granted)
        spared = use.room(node.name, node.ledger, granted)
        if spared is None or (node.asked and node.asked.keys() <= spared) or (more and not self.sure):
            return False
        self.granted += more
        ttl_ms = self.budget.lease_s * 1_000
        use.grant(node.name, node.ledger, granted, spared, self.now_ms + certain_ms(ttl_ms))
        node.held = Held(granted=granted, spared=spared, sent_ms=self.now_ms, ttl_ms=ttl_ms)
        node.waits_since_ms = None
        return True
