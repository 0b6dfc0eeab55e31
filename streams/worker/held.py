"""The nodes that a worker keeps state for, by partition: no more than exist."""

from __future__ import annotations

from collections.abc import Collection

from slacktide.schemas.policy.message import NodeSource
from slacktide.streams.columns.windows import Windows
from slacktide.streams.worker.boots import SILENT_MS
from slacktide.streams.worker.node_state import Node
from slacktide.streams.worker.nodes import Nodes


class Held:
    """States of nodes, with their places in the windows.

    Args:
        existing: which nodes exist.

    """

    def __init__(self, existing: Nodes) -> None:
        self.existing = existing
        self.windows = Windows()
        self.dropped: set[tuple[int, str]] = set()
        """Partition and name of nodes whose state was dropped, until whoever waits for their samples takes them out."""
        self._nodes: dict[int, dict[str, Node]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def of(self, partition: int) -> dict[str, Node]:
        """Nodes of a partition, by name."""
        return self._nodes.get(partition, {})

    def begin(self, partition: int, name: str, window_ms: int) -> Node | str:
        """A node's state, begun where there is none; or the reason why none is kept.

        Args:
            partition: of its samples.
            name: of the node.
            window_ms: of a new node's window.

        """
        node = self._nodes.get(partition, {}).get(name)
        if node is None:
            if why := self.existing.stranger(partition, name, len(self)):
                return why
            node = Node(partition, self.windows.window(name, window_ms))
            node.described = self.existing.described(partition, name)
            self._nodes.setdefault(partition, {})[name] = node
        return node

    def describe(self, partition: int, name: str) -> bool:
        """The node's inventory may be another; whether it is."""
        node, described = self.of(partition).get(name), self.existing.described(partition, name)
        if node is None or node.described is described:
            return False
        node.described = described
        return True

    def follow(self, source: NodeSource) -> list[tuple[int, str]]:
        """Return partition and name of nodes that do not exist any more now that this decides."""
        self.existing.source = source
        return [
            (partition, name)
            for partition, nodes in self._nodes.items()
            for name in nodes
            if not self.existing.may_exist(partition, name)
        ]

    def drop(self, partition: int, name: str) -> Node | None:
        """Give the node's place to others; returns the state that is kept no longer, None: there was none."""
        self.dropped.add((partition, name))
        known = self.of(partition).pop(name, None)
        if known is not None:
            self.windows.drop(known.window)
        return known

    def forget(self, partition: int) -> None:
        """The partition has moved away."""
        for node in self._nodes.pop(partition, {}).values():
            self.windows.drop(node.window)

    def two_boots(self, now_ms: int) -> Collection[str]:
        """Nodes of which two agents send samples just now; ``now_ms``: by the clock of append times."""
        return [
            name
            for nodes in self._nodes.values()
            for name, node in nodes.items()
            if node.boots.two and now_ms - node.boots.newest_ms < SILENT_MS
        ]
