"""Which nodes exist, and their inventory. Pure.

The policy's ``node_source`` decides. ``inventory``: nodes with an inventory record in the partition. ``open``: also a
limited number of nodes that only send samples, for machines without a publisher and for recordings.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import NodeFacts, NodeInventory
from slacktide.schemas.policy.message import NodeSource
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast

OPEN_NODES_MAX = 1_000
"""Default per worker. A node takes some 50 KB of its memory."""
UNKNOWN_NODE = "unknown node"
NO_INVENTORY = f"{UNKNOWN_NODE}: no inventory record; is the bridge running?"
FULL = f"{UNKNOWN_NODE}: this worker holds as many nodes as --open-nodes-max allows"


@dataclass(slots=True)
class Described:
    """A node's inventory record. Facts are decoded on first use: most nodes belong to other workers."""

    revision: str
    _value: bytes
    _facts: NodeFacts | None = None

    @property
    def facts(self) -> NodeFacts:
        """Return the node's facts for rules and policy."""
        if self._facts is None:
            self._facts = decode(self._value, NodeInventory).facts
            self._value = b""
        return self._facts


class Nodes:
    """The inventory of all partitions."""

    def __init__(self, open_max: int = OPEN_NODES_MAX) -> None:
        self.source: NodeSource = "open"
        self.open_max = open_max
        self._described: dict[int, dict[str, Described]] = {}
        self._forecasts: dict[int, dict[str, HeldForecast]] = {}
        self._removed: set[str] = set()
        """Nodes whose inventory was removed, while the source is ``open``."""

    def describe(self, partition: int, inventory: NodeInventory, value: bytes) -> None:
        """Keep a node's inventory; it is repeated every minute."""
        self._removed.discard(inventory.node)
        nodes = self._described.setdefault(partition, {})
        known = nodes.get(inventory.node)
        if known is None or known.revision != inventory.revision:
            nodes[inventory.node] = Described(inventory.revision, value)

    def hold_forecast(self, partition: int, node: str, held_forecast: HeldForecast) -> bool:
        """Keep a node's forecast unless there is a newer one; return whether it was kept."""
        nodes = self._forecasts.setdefault(partition, {})
        known = nodes.get(node)
        newer = known is None or held_forecast.order > known.order
        if newer:
            nodes[node] = held_forecast
        return newer

    def forecast_of(self, partition: int, node: str) -> HeldForecast | None:
        """Return a node's newest forecast; None: there is none in this partition."""
        return self._forecasts.get(partition, {}).get(node)

    def drop_forecasts(self, partition: int, node: str | None = None) -> None:
        """Forget a node's forecast; None: all of the partition, which was revoked."""
        if node is None:
            self._forecasts.pop(partition, None)
        else:
            self._forecasts.get(partition, {}).pop(node, None)

    def remove(self, partition: int, node: str) -> None:
        """Remove a node."""
        self.drop_forecasts(partition, node)
        self._described.get(partition, {}).pop(node, None)
        if self.source == "open":
            self._removed.add(node)

    def described(self, partition: int, node: str) -> Described | None:
        """Return a node's inventory; None: there is none in this partition."""
        return self._described.get(partition, {}).get(node)

    def may_exist(self, partition: int, node: str) -> bool:
        """Check whether state may be kept for a node."""
        return self.source == "open" or self.described(partition, node) is not None

    def may_publish(self, partition: int, node: str) -> bool:
        """Check whether a node's figures may be published; those of a removed node were withdrawn."""
        return self.may_exist(partition, node) and node not in self._removed

    def stranger(self, partition: int, node: str, held: int) -> str:
        """Return why no state may be kept for a new node; "" if it may. ``held``: nodes with state in this worker."""
        if self.described(partition, node) is not None:
            return ""
        if self.source == "inventory":
            return NO_INVENTORY
        return "" if held < self.open_max else FULL
