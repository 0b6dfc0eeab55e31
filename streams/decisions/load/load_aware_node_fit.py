"""Whether a pod would find a place: requests that are left, and usage that stays within the thresholds.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
podFitsAnyNodeWithThreshold; pkg/descheduler/node/node.go, NodeFit. The reference asks node by node, and of a target
only the usage that a pod brings is gone for the next pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.decisions.load.load_aware_classify import LoadedNode, PlacedPod, View
from slacktide.streams.decisions.load.load_aware_thresholds import Amounts

_Spare = dict[tuple[str, str], int]
"""What is needed of a node, or spare on it: a place, and per resource what is requested and what is used."""
_PLACE = ("place", "")


class Targets:
    """The nodes that one phase moves pods to, in order. What has found a place keeps it until the phase ends.

    A tree over the nodes: each inner one holds, per kind of room, the most that any node below it has. So the
    first node that has room is found without asking all the others.
    """

    def __init__(self, targets: Sequence[tuple[LoadedNode, View]], *, lands: bool = False) -> None:
        """Begin with what is spare now; ``lands``: requests and a place are gone for the next pod, too."""
        self._lands = lands
        self._watched = tuple(dict.fromkeys(name for _, view in targets for name in view.limits.high))
        self._leaves = 1 << len(targets).bit_length()
        """At this index and above; those without a node have no room for anything."""
        self._spare: list[_Spare] = [{} for _ in range(2 * self._leaves)]
        for at, (node, view) in enumerate(targets, self._leaves):
            self._spare[at] = _spare(node, view)
        for at in range(self._leaves - 1, 0, -1):
            self._sum_up(at)

    def take(self, pod: PlacedPod) -> bool:
        """Whether a target has room; the first that has takes the pod's usage. A pod without metric fits nowhere."""
        if pod.used is None:
            return False
        need = self._need(pod, pod.used)
        at = self._first(1, need)
        if at:
            self._use(at, need)
        return bool(at)

    def _need(self, pod: PlacedPod, used: Amounts) -> _Spare:
        """Also what is not used must be within its threshold; of what is not requested any amount may be free."""
        requested = {("requested", name): amount for name, amount in pod.requests.items()}
        return {_PLACE: 1} | requested | {("used", name): used.get(name, 0) for name in self._watched}

    def _first(self, at: int, need: _Spare) -> int:
        """The first leaf at or below this one that has room; 0: none."""
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
    """That the node is schedulable is sure: it would not be a target otherwise."""
    spare = {("requested", name): amount for name, amount in node.allocatable.items()}
    for pod in node.live_pods:
        for name, amount in pod.requests.items():
            spare["requested", name] = spare.get(("requested", name), 0) - amount
    used = {("used", name): limit - view.used[name] for name, limit in view.limits.high.items()}
    return spare | used | {_PLACE: node.pods_max - len(node.live_pods)}
