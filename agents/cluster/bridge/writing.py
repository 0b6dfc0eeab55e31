"""Which Nodes to write to now: Kubernetes' state compared with the latest figures in Kafka, which are read here."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import node_status
from slacktide.agents.cluster.bridge.node_status import GAP_S, Budget, Shown, StatusWrite, share
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import failure
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import DEFAULT, Colocation, Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.topics import ALLOCATABLE, METRIC
from slacktide.streams.decisions.coverage import NodeTable
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record

log = logging.getLogger(__name__)


class ShownNode(NamedTuple):
    """The fields of a Node that its topology needs."""

    uid: str
    batch_cpu_milli: int | None = None
    """Allocatable in the Node's status; None: none."""
    batch_mem_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write that is due."""

    kind: Literal["status", "metric"]
    node: str
    uid: str
    of: StatusWrite | NodeMetric
    reason: str
    observed_ms: int
    waits_s: float
    """How long it has been allowed and not written; the longest wait goes first."""

    @property
    def body(self) -> dict[str, object]:
        """The merge patch, built when it is sent."""
        return self.of.body if isinstance(self.of, StatusWrite) else node_status.metric_status(self.of)


@dataclass(slots=True)
class _Node:
    uid: str
    facts: NodeFacts
    shown: Shown
    colocation: Colocation
    budget: Budget
    reported_ms: int | None = None
    reported_s: float = 0.0
    tried_s: float | None = None

    @property
    def bare(self) -> bool:
        """Whether it shows none of these resources and was never written to."""
        return not self.budget.written and not self.shown.any


class NodeSelector(NamedTuple):
    """The label of the Nodes that a bridge writes to. Others have another writer, such as Koordinator."""

    key: str
    value: str

    def selects(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether a Node with these labels is written to."""
        return labels is not None and labels.get(self.key) == self.value


@dataclass(slots=True)
class Writing:
    """The bridge's state. Times are monotonic seconds."""

    metrics: NodeTable[NodeMetric] = field(default_factory=lambda: NodeTable(NodeMetric))
    allocatables: NodeTable[NodeAllocatable] = field(default_factory=lambda: NodeTable(NodeAllocatable))
    selector: NodeSelector | None = None
    """None: all Nodes are written to."""
    capped: set[str] = field(default_factory=set)
    """Nodes whose newest figures exceed their capacity; the capacity is written instead."""
    _policy: Policy = DEFAULT
    _nodes: dict[str, _Node] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """All Nodes to write to."""
        return frozenset(self._nodes)

    @property
    def shown(self) -> dict[str, ShownNode]:
        """Nodes to write to, by name, with the batch resources in their status."""
        return {name: ShownNode(node.uid, *node.shown.batch) for name, node in self._nodes.items()}

    def writes_to(self, facts: NodeFacts) -> bool:
        """Return whether a Node's labels are such that it is written to."""
        return self.selector is None or self.selector.selects(facts.labels)

    def concerns(self, facts: NodeFacts) -> bool:
        """Return whether a Node may have an agent: without the label, whatever its value, workers need not know it."""
        return self.selector is None or self.selector.key in facts.labels

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""
        self._policy = policy
        for node in self._nodes.values():
            node.colocation = colocation_on(policy, node.facts)

    def node(self, uid: str, facts: NodeFacts, shown: Shown, now_s: float) -> None:
        """Add or update a node, or leave it to its other writer. Its figures stay known: it may come back."""
        if not self.writes_to(facts):
            self._nodes.pop(facts.name, None)
            self.capped.discard(facts.name)
            return
        colocation = colocation_on(self._policy, facts)
        node = self._nodes.get(facts.name)
        if node is None or node.uid != uid:
            budget = Budget(begun_s=now_s, each_s=node_status.UNFORCED_S)
            self._nodes[facts.name] = _Node(uid, facts, shown, colocation, budget)
        else:
            node.facts, node.shown, node.colocation = facts, shown, colocation

    def shows(self, name: str, shown: Shown) -> None:
        """Update a node's status from the response to a write: its watch may be behind."""
        if (node := self._nodes.get(name)) is not None:
            node.shown = shown

    def gone(self, name: str) -> None:
        """Remove a node."""
        self._nodes.pop(name, None)
        self.capped.discard(name)
        self.metrics.forget(name)
        self.allocatables.forget(name)

    def overstated(self, published: NodeAllocatable) -> str:
        """Return which figures exceed the Node's capacity; "": none, or already reported."""
        node = self._nodes.get(published.node)
        why = "" if node is None else node_status.overstated(published, node.facts.capacity)
        if not why:
            self.capped.discard(published.node)
        elif published.node not in self.capped:
            self.capped.add(published.node)
            return why
        return ""

    def frozen(self, now_s: float) -> int:
        """Return the number of nodes whose figures are not fresh any more."""
        return sum(self.allocatables.is_silent(name, now_s) for name in self._nodes)

    def due(self, now_s: float) -> list[Write]:
        """Return writes that are due: per kind a second's share of the nodes, urgent and overdue ones first.

        Nodes without resources are added once each: no batch pod can be placed there before.
        """
        most = share(len(self._nodes))
        statuses = [write for name, node in self._nodes.items() if (write := self._status(name, node, now_s))]
        metrics = [write for name, node in self._nodes.items() if (write := self._metric(name, node, now_s))]
        others = [write for write in statuses if not self._nodes[write.node].bare]
        return [
            *(write for write in statuses if self._nodes[write.node].bare),
            *sorted(others, key=lambda write: (-write.waits_s, write.node))[:most],
            *sorted(metrics, key=lambda write: (-write.waits_s, write.node))[:most],
        ]

    def wrote(self, write: Write, now_s: float, *, done: bool) -> None:
        """Note a write and whether it succeeded."""
        node = self._nodes.get(write.node)
        if node is None or node.uid != write.uid:
            return
        if isinstance(write.of, StatusWrite):
            node.budget.wrote(now_s, unforced=done and not write.of.urgent)
        elif done:
            node.reported_ms, node.reported_s, node.tried_s = write.observed_ms, now_s, None
        else:
            node.tried_s = now_s

    def _status(self, name: str, node: _Node, now_s: float) -> Write | None:
        published = self.allocatables.of(name, now_s)
        if published is None:
            return None
        since_s = node.budget.since_s(now_s)
        if node.colocation.resource_dry_run:
            published = node_status.withdrawn(published)
        published = node_status.capped(published, node.facts.capacity)
        wanted = node_status.status_write(node.shown, published, node.colocation, since_s)
        if wanted is None or not node.budget.allows(now_s, urgent=wanted.urgent):
            return None
        return Write(
            kind="status",
            node=name,
            uid=node.uid,
            of=wanted,
            reason=wanted.reason,
            observed_ms=published.observed_ms,
            waits_s=float("inf") if wanted.urgent else since_s,
        )

    def _metric(self, name: str, node: _Node, now_s: float) -> Write | None:
        published = self.metrics.of(name, now_s)
        if published is None or (node.tried_s is not None and now_s < node.tried_s + GAP_S):
            return None
        since_s = now_s - node.reported_s
        if not node_status.is_metric_due(published, node.reported_ms, since_s, node.colocation):
            return None
        return Write(
            kind="metric",
            node=name,
            uid=node.uid,
            of=published,
            reason="due",
            observed_ms=published.observed_ms,
            waits_s=since_s,
        )


TOPICS = (ALLOCATABLE.name, METRIC.name)
PUBLISHED_AGAIN_MS = 36_000
"""Valid figures were republished within this time: workers do so every 30 s at least."""
GATHER_MS = 1_000
"""Figures may be this much older when they are written: a node is written to once a minute."""


class FigureReader:
    """Reads both topics; reconnects after errors. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self, bootstrap: Cluster, writing: Writing, to_dead_letter: Callable[[Record, str], None], clock: Clock
    ) -> None:
        self._reader = TailReader(
            bootstrap,
            TOPICS,
            client_id="slacktide-bridge",
            back_ms=PUBLISHED_AGAIN_MS,
            now_ms=clock.wall_ms,
            gather_ms=GATHER_MS,
        )
        self.following = Following(self._reader, away="nothing is written", clock=clock)
        self._live = False
        """Whether the backlog at connecting was read."""
        self._writing, self._to_dead_letter, self._clock = writing, to_dead_letter, clock

    async def run(self) -> None:
        """Run until cancelled."""
        await self.following.run(self._forget, self._receive_all)

    async def _receive_all(self, records: list[Record], now_s: float) -> None:
        now_ms = self._clock.wall_ms()
        for record in records:
            # The age of backlog records needs both clocks; a new record counts as fresh.
            age_s = 0.0 if self._live else max(0, now_ms - record.timestamp_ms) / 1000
            self._receive(record, now_s - age_s)
        self._live = self._live or await self._reader.caught_up()

    def _receive(self, record: Record, now_s: float) -> None:
        try:
            if record.topic == METRIC.name:
                self._writing.metrics.read(record, now_s)
            elif (published := self._writing.allocatables.read(record, now_s)) is not None and (
                why := self._writing.overstated(published)
            ):
                extra = {"node": published.node, "why": why}
                log.warning("figures above the Node's capacity are reduced to it", extra=extra)
                self._to_dead_letter(record, f"{why}; the capacity is written instead")
        except Exception as exc:  # noqa: BLE001 - one record stops nothing
            self._to_dead_letter(record, failure("publish to Kubernetes", exc))

    def _forget(self) -> None:
        self._live = False
        self._writing.metrics.clear()
        self._writing.allocatables.clear()
