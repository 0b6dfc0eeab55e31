"""Sums the budget that is used or may be used: in the cluster, per node and per namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.streams.governor.ledger import UNKNOWN, Ledger


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
