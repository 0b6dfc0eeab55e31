"""Distributes the remaining budget: to requesting nodes, then one standing credit per node while half of it is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.streams.governor.nodes import UNKNOWN, Held, Ledger, Node


def certain_ms(ttl_ms: int) -> int:
    """Return the time after which a lease of this duration has certainly expired."""
    return ttl_ms * 4 // 3


@dataclass(slots=True, kw_only=True)
class Round:
    """One round of allocation."""

    nodes: Collection[Node]
    budget: EvictionBudget
    now_ms: int
    sure: bool
    """Whether all leases of earlier governors are known. If not, leases are only renewed."""
    granted: int = 0
    """Newly granted credits."""

    def run(self) -> Iterator[Node]:
        """Grant leases; yield each node that got one."""
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
        """Grant one credit each to nodes without a request, while half of the budget remains free."""
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
        """Yield holders of a lease first. The others are sorted only when they are needed."""
        yield from sorted((node for node in nodes if node.in_time(self.now_ms)), key=self._first_served)
        yield from sorted((node for node in nodes if not node.in_time(self.now_ms)), key=self._first_served)

    def _offered(self, node: Node, use: Use) -> bool:
        """Grant the node's request, if the budget allows."""
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


class Use:
    """Sums of all ledgers, updated with each grant. Outstanding credit counts as spent."""

    def __init__(self, ledgers: Iterable[tuple[str, Ledger]], budget: EvictionBudget) -> None:
        self._budget = budget
        self._by_node: Counter[str] = Counter()
        self._by_namespace: Counter[str] = Counter()
        self._anywhere = 0
        counted = [(node, ledger) for node, ledger in ledgers if not ledger.empty]
        named = {one.namespace for _, ledger in counted for one in ledger.seen} - {UNKNOWN}
        named.update(name for _, ledger in counted for one in ledger.leases for name in one.spared)
        self._by_namespace.update(dict.fromkeys(named, 0))
        for node, ledger in counted:
            self._count(node, ledger)
        self.cluster = self._by_node.total()

    def room(self, node: str, ledger: Ledger, granted: int) -> frozenset[str] | None:
        """Return the namespaces that a lease of this total must exclude; None: the budget is exhausted."""
        budget, ahead = self._budget, granted - ledger.total
        more = self.added(ledger, granted)
        if self.cluster + more > budget.cluster_max or self._by_node[node] + more > budget.node_max:
            return None
        if self._anywhere + more > budget.namespace_max:
            return None  # in any namespace, including those without a request
        return frozenset(
            name
            for name, count in self._by_namespace.items()
            if count + max(0, ahead - ledger.outstanding(name)) > budget.namespace_max
        )

    def added(self, ledger: Ledger, granted: int) -> int:
        """Return the growth of outstanding credit by a lease of this total."""
        return max(0, granted - ledger.total - ledger.outstanding())

    def grant(self, node: str, ledger: Ledger, granted: int, spared: frozenset[str], over_ms: int) -> None:
        """Add a lease."""
        more, ahead = self.added(ledger, granted), granted - ledger.total
        self.cluster += more
        self._by_node[node] += more
        self._anywhere += more
        for name in self._by_namespace.keys() - spared:
            self._by_namespace[name] += max(0, ahead - ledger.outstanding(name))
        ledger.lease(granted, spared, over_ms)

    def _count(self, node: str, ledger: Ledger) -> None:
        unknown = sum(one.count for one in ledger.seen if one.namespace == UNKNOWN)
        self._by_node[node] += ledger.outstanding() + ledger.seen_count
        self._anywhere += ledger.outstanding() + unknown
        for name in self._by_namespace:
            self._by_namespace[name] += ledger.outstanding(name) + unknown
        for one in ledger.seen:
            if one.namespace != UNKNOWN:
                self._by_namespace[one.namespace] += one.count
