"""Which nodes a worker's heartbeats cover. Pure; time is the worker's ticks, pauses included.

A node is covered when this worker has published it since it took the partition over, and that still holds: a sample of
the node was taken in within seconds, or the worker calls the node stale.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

COVERED_MS = 4_000
"""A second sample may be lost. Readers freeze a node that is not covered after 15 s more."""


class Covering:
    """The nodes of the partitions held."""

    def __init__(self) -> None:
        self.at_ms = 0
        """By the ticks."""
        self._sampled_ms: dict[int, dict[str, int]] = {}
        """By partition: nodes that were published, and when a sample of each last was taken in."""

    def tick(self, passed_ms: int) -> None:
        """Time passes."""
        self.at_ms += passed_ms

    def published(self, partition: int, node: str) -> None:
        """All figures of the node are on their way."""
        self._sampled_ms.setdefault(partition, {})[node] = self.at_ms

    def sampled(self, nodes: Iterable[tuple[int, str]]) -> None:
        """Samples were taken in of nodes, by partition and name, and what was published of these holds."""
        at_ms, of, nothing = self.at_ms, self._sampled_ms.get, dict[str, int]()
        for partition, node in nodes:
            published = of(partition, nothing)
            if node in published:
                published[node] = at_ms

    def drop(self, partition: int, node: str) -> None:
        """The node is removed, or its figures could not be published."""
        self._sampled_ms.get(partition, {}).pop(node, None)

    def forget(self, partition: int) -> None:
        """The partition has moved away."""
        self._sampled_ms.pop(partition, None)

    def covered(self, partition: int, stale: Container[str]) -> list[str]:
        """Return the nodes of a partition that are covered now, in order of their names.

        Args:
            partition: its number.
            stale: nodes that the worker calls stale, and has published as such.

        """
        since_ms = self.at_ms - COVERED_MS
        nodes = self._sampled_ms.get(partition, {})
        return sorted(node for node, sampled_ms in nodes.items() if sampled_ms > since_ms or node in stale)
