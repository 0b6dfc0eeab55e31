"""The governor's state of one node (boots with their credit, liveness, lease, requests), and how it allocates credit.

The remaining budget goes to requesting nodes, then one standing credit per node while half of it is left.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from slacktide.schemas.policy.strategies import EvictionBudget

UNKNOWN = ""
"""The namespace of an eviction that only a later total shows."""


@dataclass(slots=True)
class Lease:
    """A granted total that the agent may still use."""

    granted: int
    spared: frozenset[str]
    over_ms: int
    """The time at which the lease has expired for every agent, by the governor's clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Reported evictions."""

    at_ms: int
    """The time of the report, which is after the evictions."""
    namespace: str
    count: int


class Ledger:
    """Credit of one boot. Evictions in a window are at most the grants in it minus those reported before it."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.spent: int | None = None
        """The highest reported total; None: none yet."""
        self.leases: list[Lease] = []
        self.seen: deque[Seen] = deque()
        self.granted_max = 0
        """The highest granted total, which bounds the spent credit."""

    @property
    def total(self) -> int:
        """Return the number of certain evictions."""
        return self.spent or 0

    @property
    def seen_count(self) -> int:
        """Return the number of reported evictions that still count."""
        return sum(one.count for one in self.seen)

    @property
    def empty(self) -> bool:
        """Return whether no lease and no eviction counts any more."""
        return not self.leases and not self.seen

    def outstanding(self, namespace: str | None = None) -> int:
        """Return the number of evictions granted and not reported, optionally in one namespace."""
        open_to = (one.granted for one in self.leases if namespace is None or namespace not in one.spared)
        return max(0, max(open_to, default=0) - self.total)

    def lease(self, granted: int, spared: frozenset[str], over_ms: int) -> None:
        """Record a granted total, valid until ``over_ms``."""
        self.granted_max = max(self.granted_max, granted)
        for one in self.leases:
            if (one.granted, one.spared) == (granted, spared):
                one.over_ms = max(one.over_ms, over_ms)
                return
        self.leases.append(Lease(granted, spared, over_ms))

    def saw(self, total: int, now_ms: int, *, done: str | None = None) -> None:
        """Record the total since boot that the agent reports. A lower one is ignored; the granted total bounds it.

        ``done``: the namespace, if the outcome itself is an eviction.
        """
        base = self.total
        total = min(total, self.granted_max)
        self.spent = max(base, total)
        more = total - base
        if more > 0 and done is not None:
            self.seen.append(Seen(now_ms, done, 1))
            more -= 1
        if more > 0:
            self.seen.append(Seen(now_ms, UNKNOWN, more))

    def end(self, now_ms: int) -> None:
        """End the leases: a newer boot exists."""
        for one in self.leases:
            one.over_ms = min(one.over_ms, now_ms)

    def forget(self, before_ms: int) -> None:
        """Drop leases and evictions that ended before that time."""
        self.leases = [one for one in self.leases if one.over_ms > before_ms]
        while self.seen and self.seen[0].at_ms <= before_ms:
            self.seen.popleft()


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
