"""Whether a pod would find a place: requests that are left, and usage that stays within the thresholds.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
podFitsAnyNodeWithThreshold; pkg/descheduler/node/node.go, NodeFit.
"""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.streams.decisions.load_aware_classify import LoadedNode, PlacedPod, View


class Targets:
    """The nodes that one phase moves pods to, in order. What has found a place keeps it until the phase ends."""

    def __init__(self, targets: Sequence[tuple[LoadedNode, View]]) -> None:
        self._targets = [_Target(node, view) for node, view in targets]

    def take(self, pod: PlacedPod) -> bool:
        """Whether a target had room; the first that has takes the pod's usage. A pod without metric fits nowhere."""
        return any(target.take(pod) for target in self._targets)


class _Target:
    """One node. That it is schedulable is sure: it would not be a target otherwise."""

    def __init__(self, node: LoadedNode, view: View) -> None:
        live = [pod for pod in node.pods if pod.is_live]
        self._places = node.pods_max - len(live)
        self._free = dict(node.allocatable)
        for pod in live:
            for name, amount in pod.requests.items():
                self._free[name] = self._free.get(name, 0) - amount
        self._view = view

    def take(self, pod: PlacedPod) -> bool:
        if pod.used is None or self._places <= 0 or not self._has_requested(pod):
            return False
        with_pod = self._view.plus(pod.used)
        if with_pod.excess:
            return False
        self._view = with_pod
        return True

    def _has_requested(self, pod: PlacedPod) -> bool:
        return all(amount <= self._free.get(name, 0) for name, amount in pod.requests.items())
