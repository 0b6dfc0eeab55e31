"""Finds a target node for a pod: its requests fit, and usage stays within the thresholds.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
podFitsAnyNodeWithThreshold; pkg/descheduler/node/node.go, NodeFit. The reference checks node by node, and a placed
pod reduces only the target's usage room for the next pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.decisions.load.load_aware_classify import LoadedNode, PlacedPod, View
from slacktide.streams.decisions.load.load_aware_thresholds import Amounts

_Spare = dict[tuple[str, str], int]
"""A need or a node's room: a pod slot, and per resource the requested and used amounts."""
_PLACE = ("place", "")


class Targets:
    """The target nodes of one phase, in order. A placed pod keeps its room until the phase ends.

    A tree: each inner node holds its subtree's maximum per kind of room, so the search skips full subtrees.
    """

    def __init__(self, targets: Sequence[tuple[LoadedNode, View]], *, lands: bool = False) -> None:
        """Compute the current room; ``lands``: a placed pod also takes its requests and a slot."""
        self._lands = lands
        self._watched = tuple(dict.fromkeys(name for _, view in targets for name in view.limits.high))
        self._leaves = 1 << len(targets).bit_length()
        """The index of the first leaf. Leaves without a node have no room."""
        self._spare: list[_Spare] = [{} for _ in range(2 * self._leaves)]
        for at, (node, view) in enumerate(targets, self._leaves):
            self._spare[at] = _spare(node, view)
        for at in range(self._leaves - 1, 0, -1):
            self._sum_up(at)

    def take(self, pod: PlacedPod) -> bool:
        """Place the pod on the first target with room; return whether there is one. It needs a metric."""
        if pod.used is None:
            return False
        need = self._need(pod, pod.used)
        at = self._first(1, need)
        if at:
            self._use(at, need)
        return bool(at)

    def _need(self, pod: PlacedPod, used: Amounts) -> _Spare:
        """Return the pod's needs: its requests, and its usage of all watched resources, even if 0."""
        requested = {("requested", name): amount for name, amount in pod.requests.items()}
        return {_PLACE: 1} | requested | {("used", name): used.get(name, 0) for name in self._watched}

    def _first(self, at: int, need: _Spare) -> int:
        """Return the first leaf with room at or below ``at``; 0: none."""
        spare = self._spare[at]
        if any(amount > spare.get(kind, 0) for kind, amount in need.items()):
            return 0
        if at >= self._leaves:
            return at
        return self._first(2 * at, need) or self._first(2 * at + 1, need)

    def _use(self, at: int, need: _Spare) -> None:
        for kind, amount in need.items():
            if self._lands or kind[0] == "used":
                self._spare[at][kind] = self._spare[at].get(kind, 0) - amount
        while at := at // 2:
            self._sum_up(at)

    def _sum_up(self, at: int) -> None:
        left, right = self._spare[2 * at], self._spare[2 * at + 1]
        self._spare[at] = {kind: max(left.get(kind, 0), right.get(kind, 0)) for kind in left | right}


def _spare(node: LoadedNode, view: View) -> _Spare:
    """Return the node's room. A target is always schedulable."""
    spare = {("requested", name): amount for name, amount in node.allocatable.items()}
    for pod in node.live_pods:
        for name, amount in pod.requests.items():
            spare["requested", name] = spare.get(("requested", name), 0) - amount
    used = {("used", name): limit - view.used[name] for name, limit in view.limits.high.items()}
    return spare | used | {_PLACE: node.pods_max - len(node.live_pods)}
