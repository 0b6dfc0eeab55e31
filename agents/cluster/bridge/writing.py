"""Which Nodes to write to now: Kubernetes' state compared with the latest figures in Kafka. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from slacktide.agents.cluster.bridge import node_status
from slacktide.agents.cluster.bridge.node_status import GAP_S, Budget, Shown, StatusWrite, share
from slacktide.agents.cluster.bridge.topology import ShownNode
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.metric import UNCOVERED_MS, NodeMetric
from slacktide.schemas.policy import DEFAULT, Colocation, Policy
from slacktide.schemas.policy.effective import colocation_on

M = TypeVar("M", NodeMetric, NodeAllocatable)
FROZEN_S = UNCOVERED_MS / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last(Generic[M]):
    message: M
    at_s: float
    """When it was last published, or covered by a heartbeat."""


class Latest(Generic[M]):
    """The latest message per node, by sample order. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._last: dict[str, _Last[M]] = {}

    def receive(self, message: M, now_s: float) -> None:
        """Add a record. An older sample is ignored, unless the newer one is frozen."""
        last = self._last.get(message.node)
        if last is not None and now_s < last.at_s + FROZEN_S and _order(message) < _order(last.message):
            return
        self._last[message.node] = _Last(message=message, at_s=now_s)

    def cover(self, nodes: Iterable[str], now_s: float) -> None:
        """Cover the latest figures of these nodes by a heartbeat."""
        for node in nodes:
            last = self._last.get(node)
            if last is not None and now_s > last.at_s:
                self._last[node] = replace(last, at_s=now_s)

    def forget(self, node: str) -> None:
        """Forget a removed node."""
        self._last.pop(node, None)

    def clear(self) -> None:
        """Forget all: Kafka was unavailable."""
        self._last.clear()

    def is_silent(self, node: str, now_s: float) -> bool:
        """Return whether the node's figures are frozen."""
        return node in self._last and self.of(node, now_s) is None

    def of(self, node: str, now_s: float) -> M | None:
        """Return the node's figures; None: frozen or unknown."""
        last = self._last.get(node)
        return None if last is None or now_s >= last.at_s + FROZEN_S else last.message


def _order(message: NodeMetric | NodeAllocatable) -> tuple[str, int]:
    return message.boot_id, message.seq


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


@dataclass(slots=True)
class Writing:
    """The bridge's state. Times are monotonic seconds."""

    metrics: Latest[NodeMetric] = field(default_factory=Latest)
    allocatables: Latest[NodeAllocatable] = field(default_factory=Latest)
    capped: set[str] = field(default_factory=set)
    """Nodes whose newest figures exceed their capacity; the capacity is written instead."""
    _policy: Policy = DEFAULT
    _nodes: dict[str, _Node] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """All known Nodes."""
        return frozenset(self._nodes)

    @property
    def shown(self) -> dict[str, ShownNode]:
        """Nodes by name with the batch resources in their status."""
        return {name: ShownNode(node.uid, *node.shown.batch) for name, node in self._nodes.items()}

    def policy(self, policy: Policy) -> None:
        """Apply a policy."""
        self._policy = policy
        for node in self._nodes.values():
            node.colocation = colocation_on(policy, node.facts)

    def node(self, uid: str, facts: NodeFacts, shown: Shown, now_s: float) -> None:
        """Add or update a node."""
        colocation = colocation_on(self._policy, facts)
        node = self._nodes.get(facts.name)
        if node is None or node.uid != uid:
            self._nodes[facts.name] = _Node(uid, facts, shown, colocation, Budget(begun_s=now_s))
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
        first: list[Write] = []
        others: list[Write] = []
        for write in statuses:
            (first if self._nodes[write.node].bare else others).append(write)
        return [
            *first,
            *sorted(others, key=lambda write: (-write.waits_s, write.node))[:most],
            *sorted(metrics, key=lambda write: (-write.waits_s, write.node))[:most],
        ]

    def wrote(self, write: Write, now_s: float, *, done: bool) -> None:
        """Note a write and whether it succeeded."""
        node = self._nodes.get(write.node)
        if node is None or node.uid != write.uid:
            return
        if write.kind == "status":
            node.budget.wrote(now_s)
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
            published = node_status.unsold(published)
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
