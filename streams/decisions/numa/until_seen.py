"""Ends a reservation when the node's zone record names the pod.

Slacktide's own; docs/numa-rules.md compares it with the reference.
"""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.streams.decisions.numa.pod import Pod, corrected_request, exclusive_cpu_milli
from slacktide.streams.decisions.numa.reservations import Passthrough, SeenPod, Topology, View, view_of
from slacktide.streams.decisions.numa.resource import CPU, Amounts, is_affine


def reserved_request(pod: Pod) -> dict[str, int]:
    """Return the pinned part of a request: whole CPUs and memory, only for Guaranteed pods."""
    request = corrected_request(pod) | {CPU: exclusive_cpu_milli(pod)}
    return {name: amount for name, amount in request.items() if amount and (pod.guaranteed or not is_affine(name))}


class UntilSeen(Passthrough):
    """Charges a pod to every zone until the agent's record names its uid, or the pod is deleted.

    The record applies immediately, so no timer, refusal or fingerprint is needed.
    """

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        super().__init__(at_start)
        self._held: dict[str, dict[str, Amounts]] = {}

    def view(self, node: str) -> View:
        """Return the record's available amounts minus reservations."""
        return view_of(self.api.get(node), self._held.get(node, {}).values())

    def topology(self, node: str, topology: Topology) -> None:
        """Release the reservations of pods that the record names."""
        super().topology(node, topology)
        for uid in topology.uids:
            self._drop(node, uid)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Reserve by uid, unless the record names the pod."""
        recorded = self.api.get(node)
        if recorded is None or pod.uid not in recorded.uids:
            self._held.setdefault(node, {})[pod.uid] = reserved_request(pod.pod)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """Release by uid."""
        self._drop(node, pod.uid)

    def pod_seen(self, pod: SeenPod) -> None:
        """Release a pod that ended or was bound to another node."""
        done = pod.phase in {"Succeeded", "Failed"}
        for node in list(self._held):
            if done or pod.node not in {"", node}:
                self._drop(node, pod.uid)

    def pod_gone(self, pod: SeenPod) -> None:
        """Release the pod on all nodes."""
        for node in self._held:
            self._drop(node, pod.uid)

    def _drop(self, node: str, uid: str) -> None:
        self._held.get(node, {}).pop(uid, None)
