"""The nodes that a worker keeps state for, by partition: only nodes that exist."""

from __future__ import annotations

from collections.abc import Collection

from slacktide.schemas.policy.message import NodeSource
from slacktide.streams.columns.windows import Windows
from slacktide.streams.worker.boots import SILENT_MS
from slacktide.streams.worker.node_state import Node
from slacktide.streams.worker.nodes import Nodes


class Held:
    """States of nodes, with their windows. ``existing`` decides which nodes exist."""

    def __init__(self, existing: Nodes) -> None:
        self.existing = existing
        self.windows = Windows()
        self.dropped: set[tuple[int, str]] = set()
        """Partition and name of dropped nodes, until a consumer of their samples removes them."""
        self._nodes: dict[int, dict[str, Node]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def of(self, partition: int) -> dict[str, Node]:
        """Return the nodes of a partition, by name."""
        return self._nodes.get(partition, {})

    def begin(self, partition: int, name: str, window_ms: int) -> Node | str:
        """Return a node's state, created if needed, or the reason why there is none. ``window_ms``: of a new window."""
        node = self._nodes.get(partition, {}).get(name)
        if node is None:
            if why := self.existing.stranger(partition, name, len(self)):
                return why
            node = Node(partition, self.windows.window(name, window_ms))
            node.described = self.existing.described(partition, name)
            self._nodes.setdefault(partition, {})[name] = node
        return node

    def describe(self, partition: int, name: str) -> bool:
        """Update the node's inventory; return whether it changed."""
        node, described = self.of(partition).get(name), self.existing.described(partition, name)
        if node is None or node.described is described:
            return False
        node.described = described
        return True

    def follow(self, source: NodeSource) -> list[tuple[int, str]]:
        """Set the source of existing nodes; return partition and name of those that no longer exist."""
        self.existing.source = source
        return [
            (partition, name)
            for partition, nodes in self._nodes.items()
            for name in nodes
            if not self.existing.may_exist(partition, name)
        ]

    def drop(self, partition: int, name: str) -> Node | None:
        """Drop a node's state and return it; None: there was none."""
        self.dropped.add((partition, name))
        known = self.of(partition).pop(name, None)
        if known is not None:
            self.windows.drop(known.window)
        return known

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        for node in self._nodes.pop(partition, {}).values():
            self.windows.drop(node.window)

    def two_boots(self, now_ms: int) -> Collection[str]:
        """Return the nodes with two sending agents; ``now_ms``: by the clock of append times."""
        return [
            name
            for nodes in self._nodes.values()
            for name, node in nodes.items()
            if node.boots.two and now_ms - node.boots.newest_ms < SILENT_MS
        ]
