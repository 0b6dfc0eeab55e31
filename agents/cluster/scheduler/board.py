"""What nodes answered for pods of one shape, until they change. Pure."""

from collections.abc import Sequence

from slacktide.streams.decisions.load.pod_placement import Judged, Refusal, Willing


class Board:
    """A mutable cache. Hundreds of pods often share a shape, and each is tested on a thousand nodes."""

    def __init__(self) -> None:
        self._followed = -1
        self._refused: dict[str, Refusal] = {}
        self._willing: dict[str, Willing] = {}

    def follow(self, changed: dict[str, int]) -> None:
        """Drop nodes that changed. ``changed``: by node the number of its last change, in ascending order."""
        for node, change in reversed(changed.items()):
            if change <= self._followed:
                break
            self.drop(node)
        self._followed = max(self._followed, next(reversed(changed.values()), -1))

    def put(self, node: str, judged: Judged) -> None:
        """Cache a node's result."""
        if isinstance(judged, Willing):
            self._willing[node] = judged
        else:
            self._refused[node] = judged

    def drop(self, node: str) -> None:
        """Drop a changed node."""
        if self._willing.pop(node, None) is None:
            self._refused.pop(node, None)

    def missing(self, nodes: set[str]) -> list[str]:
        """Those of the nodes without a result, by name."""
        return sorted(nodes.difference(self._willing).difference(self._refused))

    def of(self, nodes: Sequence[str]) -> tuple[dict[str, Refusal], list[Willing]]:
        """Split the nodes, each named once, into refusing and accepting ones; all must be cached."""
        if len(nodes) == len(self._willing) + len(self._refused):
            return self._refused.copy(), list(self._willing.values())
        refused = {node: self._refused[node] for node in nodes if node in self._refused}
        return refused, [self._willing[node] for node in nodes if node in self._willing]
