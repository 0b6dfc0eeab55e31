"""Tracks which nodes a worker's heartbeats cover. Pure; time is the worker's ticks, pauses included.

A node is covered if this worker has published it since the takeover, and its figures are valid. Either a sample arrived
within seconds, or the worker has marked the node stale.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

COVERED_MS = 4_000
"""Allows for one lost sample. Readers freeze a node that is not covered after 15 s more."""


class Covering:
    """The nodes of the partitions held."""

    def __init__(self) -> None:
        self.at_ms = 0
        self._sampled_ms: dict[int, dict[str, int]] = {}
        """By partition: published nodes, and when the last sample of each arrived."""

    def tick(self, passed_ms: int) -> None:
        """Advance the time."""
        self.at_ms += passed_ms

    def published(self, partition: int, node: str) -> None:
        """Note that the node's figures are being published."""
        self._sampled_ms.setdefault(partition, {})[node] = self.at_ms

    def sampled(self, nodes: Iterable[tuple[int, str]]) -> None:
        """Note samples of nodes, by partition and name, with which the published figures are still valid."""
        at_ms, of, nothing = self.at_ms, self._sampled_ms.get, dict[str, int]()
        for partition, node in nodes:
            published = of(partition, nothing)
            if node in published:
                published[node] = at_ms

    def drop(self, partition: int, node: str) -> None:
        """Remove a node that was removed, or whose figures could not be published."""
        self._sampled_ms.get(partition, {}).pop(node, None)

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self._sampled_ms.pop(partition, None)

    def covered(self, partition: int, stale: Container[str]) -> list[str]:
        """Return the covered nodes of a partition, sorted; ``stale`` nodes were published as stale."""
        since_ms = self.at_ms - COVERED_MS
        nodes = self._sampled_ms.get(partition, {})
        return sorted(node for node, sampled_ms in nodes.items() if sampled_ms > since_ms or node in stale)
