"""The eviction governor, without Kafka. ``streams/engine/governing`` feeds it and elects the leader."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slacktide.schemas import policy as policies
from slacktide.schemas.bounds import COUNT_MAX, Count, Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import ACCOUNTS, NO_CREDIT, EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import CREDIT, METRIC, OUTCOME, POLICY
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.governor.nodes import Held, Ledger, Node, Round, certain_ms
from slacktide.streams.proofs import Judge, Proofs
from slacktide.streams.records import Out, Record, Writer, text_of


class NodeLiveness(Message, frozen=True, kw_only=True):
    """A NodeMetric without figures: shows that a boot of a node lives, unless it is stale."""

    node: Name
    boot_id: Revision
    stale_ms: Count = 0


M = TypeVar("M", NodeOutcome, EvictionCredit)


def _of_node(record: Record, kind: type[M]) -> M:
    """Decode an outcome or a lease. Raises BadMessageError if it is none, or its key names another node."""
    found = decode(record.value, kind)
    if record.key != found.node.encode():
        raise BadMessageError(kind.__name__, f"the record's key is {record.key!r}, not {found.node!r}")
    return found


SPENDS = frozenset({"applied", "failed"})
"""An eviction that was begun spends its credit, even if it failed."""
CLOCKS_MS = 60_000
"""Upper bound for the difference between the clocks of writers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures for metrics."""

    granted: int
    """Credits granted by the last tick, without renewals."""
    outstanding: int
    spent: int
    """Reported evictions in the interval."""
    budget: int
    """Evictions allowed in the interval."""
    waiting: int
    """The number of nodes that request credit."""


class Governor:
    """Grants eviction credit. Its state survives between terms. ``judge`` checks proofs of outcomes; None: no keys."""

    def __init__(self, name: str, judge: Judge | None = None) -> None:
        self.epoch = 0
        self._writer = Writer(f"governor/{name}")
        self._proofs = Proofs(self._writer, judge)
        self._highest = (0, 0)
        """The highest epoch in the credit topic, and its highest number."""
        self._number = 0
        self._namesake = False
        """Another governor has the same epoch."""
        self._granted = 0
        self._sure_ms = 0
        self._nodes: dict[str, Node] = {}
        self._coverage = Coverage()
        self._readers = {
            POLICY.name: lambda record, *_: self._proofs.policy(record),
            METRIC.name: self._metric,
            OUTCOME.name: self._outcome,
            CREDIT.name: self._credit,
        }

    @property
    def in_force(self) -> policies.Policy:
        """Return the policy in force: the last valid one of the highest writer epoch."""
        return self._proofs.policies.policy

    @property
    def superseded(self) -> bool:
        """Return whether another governor leads. A new term must then begin."""
        return self._namesake or self._highest[0] > self.epoch

    @property
    def send_ms(self) -> int:
        """Return the time to write a lease to Kafka: half of the time assumed for its way to the node."""
        return self.in_force.eviction_budget.lease_s * 1_000 // 6

    def read_back_ms(self) -> int:
        """Return how far to read topics back at a term's start; older records no longer count."""
        budget = self.in_force.eviction_budget
        return budget.interval_s * 1_000 + certain_ms(budget.lease_s * 1_000) + CLOCKS_MS

    def begin(self, leases: Sequence[Record], outcomes: Iterable[Record], since_ms: int, now_ms: int) -> list[Out]:
        """Begin a term from the leases and evictions before it.

        ``leases``: the whole credit topic, in order. ``outcomes``: in order per node, at least since ``since_ms``.
        ``since_ms``: ``read_back_ms`` ago, by record timestamps. ``now_ms``: this process's monotonic clock.
        """
        outs: list[Out] = []
        recent: list[tuple[Node, Ledger, EvictionCredit]] = []
        for record in leases:
            found = self._lease_of(record, outs, now_ms)
            if found is not None:
                _, ledger, lease = found
                old = record.timestamp_ms < since_ms
                ledger.granted_max = max(ledger.granted_max, lease.granted)
                if old or ledger.spent is None:
                    ledger.spent = max(ledger.total, lease.spent)
                recent += [] if old else [found]
        for record in outcomes:
            if record.timestamp_ms >= since_ms:
                self._outcome(record, outs, now_ms)
        lease_ms = self.in_force.eviction_budget.lease_s * 1_000
        for node, ledger, lease in recent:
            ledger.saw(lease.spent, now_ms)
            self._enter(node, ledger, lease, now_ms)
        # Above all epochs in the credit topic. With the wall clock, it is higher even after the topic was lost. If the
        # topic holds the highest possible epoch, the term continues its numbers.
        self.epoch = min(max(self._highest[0] + 1, since_ms // 1_000), COUNT_MAX)
        if self.epoch == self._highest[0]:
            self._number = max(self._number, self._highest[1])
        self._highest, self._namesake = (self.epoch, self._number), False
        self._sure_ms = now_ms + certain_ms(max([lease_ms, *(lease.ttl_ms for _, _, lease in recent)]))
        return outs

    def receive(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Process records; returns dead letters for unreadable ones."""
        outs: list[Out] = []
        for record in records:
            try:
                self._readers[record.topic](record, outs, now_ms)
            except Exception as exc:  # noqa: BLE001 - one record's: the next one is read
                outs.append(self._writer.failed("govern", record, exc))
        return outs

    def tick(self, now_ms: int, wall_ms: int) -> list[Out]:
        """Grant and renew leases. ``now_ms``: this process's monotonic clock; ``wall_ms``: UTC epoch, for records."""
        budget = self.in_force.eviction_budget
        for node in self._nodes.values():
            node.forget(now_ms - budget.interval_s * 1_000, now_ms)
        self._nodes = {name: node for name, node in self._nodes.items() if node.counts(now_ms)}
        allocation = Round(nodes=self._nodes.values(), budget=budget, now_ms=now_ms, sure=now_ms >= self._sure_ms)
        outs: list[Out] = []
        for node in allocation.run():
            held = node.held
            assert held is not None, f"{node.name} was granted nothing"
            lease = EvictionCredit(
                node=node.name,
                boot_id=node.ledger.boot_id,
                epoch=self.epoch,
                number=self._next(),
                granted=held.granted,
                ttl_ms=held.ttl_ms,
                spared_namespaces=sorted(held.spared),
                spent=node.ledger.total,
                granted_ms=wall_ms,
            )
            outs.append(self._writer.credit(lease))
        self._granted = allocation.granted
        return outs

    def figures(self) -> Figures:
        """Return the figures after the last tick."""
        ledgers = [ledger for node in self._nodes.values() for _, ledger in node.ledgers() if not ledger.empty]
        return Figures(
            granted=self._granted,
            outstanding=sum(ledger.outstanding() for ledger in ledgers),
            spent=sum(ledger.seen_count for ledger in ledgers),
            budget=self.in_force.eviction_budget.cluster_max,
            waiting=sum(bool(node.asked) for node in self._nodes.values()),
        )

    def _metric(self, record: Record, outs: list[Out], now_ms: int) -> None:
        """Process a node's metric, its removal, or a heartbeat."""
        if record.value is None:
            self._unvalued(record, outs, now_ms)
            return
        try:
            seen = decode(record.value, NodeLiveness)
        except BadMessageError:
            return  # written by workers, so no agent is at fault
        if seen.stale_ms:  # the node is silent
            if (silent := self._nodes.get(seen.node)) is not None:
                silent.stale = True
            return
        node, ledger = self._known(seen.node, seen.boot_id, now_ms)
        if ledger is node.ledger:
            node.received_ms, node.stale = now_ms, False

    def _unvalued(self, record: Record, outs: list[Out], now_ms: int) -> None:
        """Process a null record. A heartbeat covers nodes; any other null removes a node with its lease."""
        if is_heartbeat(record.key):
            for name in self._coverage.receive(record, now_ms / 1_000):
                if (covered := self._nodes.get(name)) is not None:
                    covered.cover(now_ms)
            return
        node = self._nodes.get(text_of(record.key or b""))
        if node is not None and node.held is not None:
            node.received_ms = node.held = None
            outs.append(self._writer.credit_gone(node.name, f"{self.epoch}/{self._next()}", record.timestamp_ms))

    def _outcome(self, record: Record, outs: list[Out], now_ms: int) -> None:
        """Count an eviction, or note a node that lacks credit. Other outcomes are ignored."""
        if record.value is None or self._proofs.refused(record, outs):
            return
        try:
            outcome = _of_node(record, NodeOutcome)
        except BadMessageError as exc:
            outs.append(self._writer.dead(record, str(exc), record.timestamp_ms))
            return
        spent = outcome.spent
        if spent is None:
            return
        if outcome.node in ACCOUNTS:
            self._known(outcome.node, outcome.boot_id, now_ms)  # the node has no metric
        node = self._nodes.get(outcome.node)
        ledger = None if node is None else node.ledger_at(outcome.boot_id)
        if node is None or ledger is None:
            return  # only metrics and leases prove a node and boot; an outcome is a claim
        namespace = outcome.pod.namespace if outcome.pod is not None else ""
        ledger.saw(spent.evictions, now_ms, done=namespace if outcome.pod and outcome.result in SPENDS else None)
        if (outcome.result, outcome.reason) == ("refused", NO_CREDIT) and ledger is node.ledger:
            node.ask(namespace, now_ms)

    def _credit(self, record: Record, outs: list[Out], now_ms: int) -> None:
        """Read a lease: this governor's own, or one of a superseded governor."""
        found = self._lease_of(record, outs, now_ms)
        if found is None:
            return
        node, ledger, lease = found
        if lease.epoch == self.epoch and lease.number > self._number:
            # Neither had written when the other began. In the last epoch there is no higher one.
            self._namesake = lease.epoch < COUNT_MAX
        self._enter(node, ledger, lease, now_ms)

    def _lease_of(self, record: Record, outs: list[Out], now_ms: int) -> tuple[Node, Ledger, EvictionCredit] | None:
        if record.value is None:
            return None
        try:
            lease = _of_node(record, EvictionCredit)
        except BadMessageError as exc:
            outs.append(self._writer.dead(record, str(exc), record.timestamp_ms))
            return None
        self._highest = max(self._highest, (lease.epoch, lease.number))
        node, ledger = self._known(lease.node, lease.boot_id, now_ms)
        return None if ledger is None else (node, ledger, lease)

    def _enter(self, node: Node, ledger: Ledger, lease: EvictionCredit, now_ms: int) -> None:
        spared = frozenset(lease.spared_namespaces)
        current = ledger is node.ledger
        ledger.lease(lease.granted, spared, now_ms + certain_ms(lease.ttl_ms) if current else now_ms)
        if current and lease.epoch != self.epoch:
            # Publish it again immediately, in this term.
            node.held = Held(
                granted=lease.granted, spared=spared, sent_ms=now_ms - lease.ttl_ms // 2, ttl_ms=lease.ttl_ms
            )

    def _known(self, name: str, boot_id: str, now_ms: int) -> tuple[Node, Ledger | None]:
        """Return the node and the ledger of its boot; None for a boot too old to count."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Node(name=name, ledger=Ledger(boot_id))
        return node, node.ledger_of(boot_id, now_ms)

    def _next(self) -> int:
        self._number = min(self._number + 1, COUNT_MAX)
        return self._number
