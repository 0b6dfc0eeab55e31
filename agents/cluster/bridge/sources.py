"""Follows Nodes and passes changes to a listener. Reads from Kafka what earlier leaders published."""

import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.node_status import Shown, shown
from slacktide.agents.cluster.descheduler.passes import PODS_MAX, Place
from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.cluster.watching import each_alone, inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.objects import Node
from slacktide.agents.kubernetes.resource import NODES
from slacktide.agents.publisher import REPUBLISH_S
from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, ConfigError, QuantityError
from slacktide.schemas.inventory import NodeFacts, NodeInventory, supersedes
from slacktide.schemas.kubernetes import node_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import INVENTORY, POLICY
from slacktide.schemas.units import whole
from slacktide.streams.decisions.ignored_marks import ignored_marks
from slacktide.streams.kafka import read_topic

ROUNDS = 3
"""Republishing intervals: each living node was published within this many before the last policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTerm:
    """What earlier leaders published."""

    epoch: int
    """The highest epoch of any writer."""
    nodes: frozenset[str]
    """Nodes published and not removed."""
    policy: Policy | None
    """The last valid policy of the highest epoch."""


async def read_back(bootstrap: Cluster) -> EarlierTerm:
    """Read the policy topic, and the last minutes of the inventory by its last writer.

    Raises:
        LogError: Kafka is unavailable, or a topic is missing.
    """
    policy: Policy | None = None
    highest, newest_ms = 0, None
    async with aclosing(read_topic(bootstrap, POLICY.name)) as records:
        async for record in records:
            newest_ms = record.timestamp_ms
            try:
                read = policies.read(record.key, record.value)
            except BadMessageError:
                continue
            highest = max(highest, read.writer_epoch)
            if policy is None or supersedes(read, policy):
                policy = read
    since_ms = None if newest_ms is None else newest_ms - round(ROUNDS * REPUBLISH_S * 1_000)
    nodes, epoch = await _inventory(bootstrap, since_ms)
    return EarlierTerm(epoch=max(epoch, highest), nodes=nodes, policy=policy)


async def _inventory(bootstrap: Cluster, since_ms: int | None) -> tuple[frozenset[str], int]:
    nodes: set[str] = set()
    epoch = 0
    async with aclosing(read_topic(bootstrap, INVENTORY.name, since_ms=since_ms)) as records:
        async for record in records:
            name = (record.key or b"").decode(errors="replace")
            if record.value is None:
                nodes.discard(name)
                continue
            nodes.add(name)
            try:
                epoch = max(epoch, decode(record.value, NodeInventory).writer_epoch)
            except BadMessageError:
                continue
    return frozenset(nodes), epoch


log = logging.getLogger(__name__)


def place_of(node: Node, facts: NodeFacts) -> Place:
    """Return the Node as a target for pods."""
    hard = any(taint.effect in {"NoSchedule", "NoExecute"} for taint in node.spec.taints or ())
    pods_max = PODS_MAX
    with suppress(QuantityError):
        pods_max = whole((node.status.allocatable or {}).get("pods", PODS_MAX))
    return Place(facts=facts, takes_pods=not node.spec.unschedulable and not hard, pods_max=pods_max)


class Listener(Protocol):
    """Receives changes, on the event loop's thread."""

    def node(self, uid: str, place: Place, shown: Shown) -> None:
        """Add or update a node."""

    def removed(self, name: str) -> None:
        """Remove a node."""

    def trouble(self, of: str, why: str) -> None:
        """Note why ``nodes`` cannot be read; "": all is well."""


class NodeSource:
    """Follows Nodes."""

    def __init__(self, listener: Listener, earlier: EarlierTerm, ignored: IgnoredFields) -> None:
        self._listener, self._ignored = listener, ignored
        self._known = set(earlier.nodes)
        self._refused: dict[str, str] = {}

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        trouble = partial(self._listener.trouble, "nodes")
        await inform(follow(api, NODES, Node), self._whole, self._changed, lambda _, name: self._gone(name), trouble)

    def _whole(self, nodes: list[Node]) -> None:
        metrics.LISTED.labels("nodes").inc()
        for name in sorted(self._known - {node.metadata.name for node in nodes}):
            self._gone(name)
        for node in nodes:
            self._changed(node)

    @each_alone("nodes")
    def _changed(self, node: Node) -> None:
        name = node.metadata.name
        self._known.add(name)
        try:
            described = node_of(msgspec.to_builtins(node), f"Node {name}")
        except ConfigError as exc:
            self._warn_once(name, str(exc))
            return
        self._warn_once(name, "")
        self._ignored.take("Node", {"name": name, "uid": node.metadata.uid}, ignored_marks(described.facts))
        shows = shown(node.status.capacity, node.status.allocatable)
        self._listener.node(node.metadata.uid, place_of(node, described.facts), shows)

    def _gone(self, name: str) -> None:
        self._known.discard(name)
        self._refused.pop(name, None)
        self._listener.removed(name)

    def _warn_once(self, name: str, why: str) -> None:
        if why and self._refused.get(name) != why:
            log.warning("%s", why)
        self._refused[name] = why
