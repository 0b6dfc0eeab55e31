"""A reservation ends when the node's own record of its zones names the pod.

Slacktide's own; docs/numa-rules.md compares it with the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.streams.decisions.numa.pod import Pod, corrected_request, exclusive_cpu_milli
from slacktide.streams.decisions.numa.reservations import Passthrough, SeenPod, Topology, View, view_of
from slacktide.streams.decisions.numa.resource import CPU, Amounts, is_affine


def reserved_request(pod: Pod) -> dict[str, int]:
    """What the kubelet will pin of a zone: whole CPUs and memory only of a Guaranteed pod."""
    request = corrected_request(pod) | {CPU: exclusive_cpu_milli(pod)}
    return {name: amount for name, amount in request.items() if amount and (pod.guaranteed or not is_affine(name))}


class UntilSeen(Passthrough):
    """A pod is charged to every zone until the node's record names its uid, or it is gone.

    The record is the agent's. It is used at once, so no timer, refusal or fingerprint is needed.
    """

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        super().__init__(at_start)
        self._held: dict[str, dict[str, Amounts]] = {}

    def view(self, node: str) -> View:
        """What the record has available, less what it cannot know yet."""
        return view_of(self.api.get(node), self._held.get(node, {}).values())

    def topology(self, node: str, topology: Topology) -> None:
        """The pods that the record names are counted in it."""
        super().topology(node, topology)
        for uid in topology.uids:
            self._drop(node, uid)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Unless the record names it already."""
        recorded = self.api.get(node)
        if recorded is None or pod.uid not in recorded.uids:
            self._held.setdefault(node, {})[pod.uid] = reserved_request(pod.pod)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """By uid."""
        self._drop(node, pod.uid)

    def pod_seen(self, pod: SeenPod) -> None:
        """A pod that is done, or was bound to another node, holds nothing here."""
        done = pod.phase in {"Succeeded", "Failed"}
        for node in list(self._held):
            if done or pod.node not in {"", node}:
                self._drop(node, pod.uid)

    def pod_gone(self, pod: SeenPod) -> None:
        """It holds nothing anywhere."""
        for node in self._held:
            self._drop(node, pod.uid)

    def _drop(self, node: str, uid: str) -> None:
        self._held.get(node, {}).pop(uid, None)
