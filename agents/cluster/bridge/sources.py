"""Follows Nodes and passes changes to a listener."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import Protocol

import msgspec

from slacktide.agents.cluster.bridge.earlier_term import EarlierTerm
from slacktide.agents.cluster.bridge.node_status import Shown, shown
from slacktide.agents.cluster.descheduler.cluster import PODS_MAX, Place
from slacktide.agents.kubernetes import NODES, ApiServer, Changed, Gone, Trouble, Whole, follow
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.kubernetes import node_of
from slacktide.schemas.units import whole

log = logging.getLogger(__name__)


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The used metadata of a Node."""

    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Taint(msgspec.Struct, frozen=True, kw_only=True):
    """A taint."""

    effect: str = ""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of a Node's spec."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of a Node's status."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of a Node."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    def shown(self) -> Shown:
        """Its batch and mid resources."""
        return shown(self.status.capacity, self.status.allocatable)

    def place(self, facts: NodeFacts) -> Place:
        """Return the Node as a target for pods."""
        hard = any(taint.effect in {"NoSchedule", "NoExecute"} for taint in self.spec.taints or ())
        pods = (self.status.allocatable or {}).get("pods")
        return Place(
            facts=facts,
            takes_pods=not self.spec.unschedulable and not hard,
            pods_max=PODS_MAX if pods is None else whole(pods),
        )


class Listener(Protocol):
    """Receives changes, on the event loop's thread."""

    def node(self, uid: str, place: Place, shown: Shown) -> None:
        """Add or update a node."""

    def removed(self, name: str) -> None:
        """Remove a node."""

    def trouble(self, of: str, why: str) -> None:
        """Note why ``nodes`` cannot be read; "": all is well."""

    def listed(self, of: str) -> None:
        """Record that a complete list was read."""


class NodeSource:
    """Follows Nodes."""

    def __init__(self, listener: Listener, earlier: EarlierTerm) -> None:
        self._listener = listener
        self._known = set(earlier.nodes)
        self._refused: dict[str, str] = {}

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        async with aclosing(follow(api, NODES, Node)) as events:
            async for one in events:
                self._listener.trouble("nodes", one.why if isinstance(one, Trouble) else "")
                match one:
                    case Whole(items=items):
                        self._whole(items)
                    case Changed(object=node):
                        self._changed(node)
                    case Gone(name=name):
                        self._gone(name)

    def _whole(self, nodes: list[Node]) -> None:
        self._listener.listed("nodes")
        for name in sorted(self._known - {node.metadata.name for node in nodes}):
            self._gone(name)
        for node in nodes:
            self._changed(node)

    def _changed(self, node: Node) -> None:
        name = node.metadata.name
        self._known.add(name)
        try:
            described = node_of(msgspec.to_builtins(node), f"Node {name}")
        except ConfigError as exc:
            self._warn_once(name, str(exc))
            return
        self._warn_once(name, "\n".join(described.notes))
        self._listener.node(node.metadata.uid, node.place(described.facts), node.shown())

    def _gone(self, name: str) -> None:
        self._known.discard(name)
        self._refused.pop(name, None)
        self._listener.removed(name)

    def _warn_once(self, name: str, why: str) -> None:
        if why and self._refused.get(name) != why:
            log.warning("%s", why)
        self._refused[name] = why
