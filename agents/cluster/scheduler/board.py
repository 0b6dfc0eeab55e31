"""What nodes answered pods of one shape: each is asked again only when something changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.decisions.pod_placement import Judged, Refusal, Willing


class Board:
    """Mutable. Pods often come in hundreds of one shape, a thousand nodes are asked for each."""

    def __init__(self) -> None:
        self._followed = -1
        self._refused: dict[str, Refusal] = {}
        self._willing: dict[str, Willing] = {}

    def follow(self, changed: dict[str, int]) -> None:
        """Drop nodes of which something is new.

        Args:
            changed: by node the number of its last change, in the order of these.

        """
        for node, change in reversed(changed.items()):
            if change <= self._followed:
                break
            self.drop(node)
        self._followed = max(self._followed, next(reversed(changed.values()), -1))

    def put(self, node: str, judged: Judged) -> None:
        """Keep a node's answer until it is dropped."""
        if isinstance(judged, Willing):
            self._willing[node] = judged
        else:
            self._refused[node] = judged

    def drop(self, node: str) -> None:
        """Something is new of a node: its answer may not hold."""
        if self._willing.pop(node, None) is None:
            self._refused.pop(node, None)

    def missing(self, nodes: set[str]) -> list[str]:
        """Those of these nodes that are to be asked, by name."""
        return sorted(nodes.difference(self._willing).difference(self._refused))

    def of(self, nodes: Sequence[str]) -> tuple[dict[str, Refusal], list[Willing]]:
        """Which of these nodes, each named once, refuse, and which do not; all of them have been put."""
        if len(nodes) == len(self._willing) + len(self._refused):
            return self._refused.copy(), list(self._willing.values())
        refused = {node: self._refused[node] for node in nodes if node in self._refused}
        return refused, [self._willing[node] for node in nodes if node in self._willing]
