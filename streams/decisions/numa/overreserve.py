"""Charges reserved pods to every zone until the node's report includes them.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/cache (overreserve.go, store.go, foreign_pods.go,
attr_watch.go) and resourcerequests/exclusive.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Literal

from slacktide.streams.decisions.numa.pod_fingerprint import pod_fingerprint
from slacktide.streams.decisions.numa.reservations import Passthrough, SeenPod, Topology, View, view_of
from slacktide.streams.decisions.numa.topology import (
    CPU,
    Amounts,
    Pod,
    effective_request,
    is_memory,
    is_native,
    whole_cpus,
)


def is_exclusive(pod: Pod, listed: Collection[str]) -> bool:
    """Return whether an app container or sidecar requests exclusive resources, given what the node's zones list."""
    running = chain((one for one in pod.inits if one.sidecar), pod.containers)
    return any(_exclusive(pod, name, amount, listed) for one in running for name, amount in one.requests.items())


def _exclusive(pod: Pod, name: str, amount: int, listed: Collection[str]) -> bool:
    if not is_native(name):
        return name in listed
    return pod.guaranteed and ((name == CPU and whole_cpus(amount)) or (is_memory(name) and amount > 0))


Resync = Literal["Autodetect", "All", "OnlyExclusiveResources"]
Counted = Literal["shared", "dedicated"]
Detect = Literal["All", "OnlyExclusiveResources", "None"]
FINGERPRINT = "nodeTopologyPodsFingerprint"
METHOD = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
ONLY_EXCLUSIVE = "with-exclusive-resources"


class OverReserve(Passthrough):
    """Charges reserved pods to every zone, until a resync after a refusal finds that pods and fingerprint agree."""

    def __init__(
        self,
        at_start: Mapping[str, Topology],
        *,
        resync_method: Resync = "Autodetect",
        counted: Counted = "shared",
        detect: Detect = "All",
        own_schedulers: Collection[str] = (),
    ) -> None:
        super().__init__(at_start)
        self._cached = dict(at_start)
        self._assumed: dict[str, dict[tuple[str, str], Amounts]] = {}
        self._failed: set[str] = set()
        self._foreign: set[str] = set()
        self._changed: set[str] = set()
        self._pods: dict[tuple[str, str], SeenPod] = {}
        self._resync_method = resync_method
        self._counts: Callable[[SeenPod], bool] = _runs if counted == "shared" else _is_bound
        self._detect = detect
        self._own_schedulers = own_schedulers

    @property
    def dirty(self) -> Collection[str]:
        """Return nodes that a filter rejected, and nodes with pods of other schedulers."""
        return self._failed | self._foreign

    @property
    def config_changed(self) -> Collection[str]:
        """Return nodes with a changed kubelet configuration since the last resync."""
        return self._changed

    def view(self, node: str) -> View:
        """Return the cached zones; a node created after the start has no topology."""
        if node in self._foreign:
            return View(fresh=False, zones=None)
        return view_of(self._cached.get(node), self._assumed.get(node, {}).values())

    def topology(self, node: str, topology: Topology) -> None:
        """Record the object for the next resync."""
        cached = self._cached.get(node)
        if node in self.api and cached is not None and cached.kubelet() != topology.kubelet():
            self._changed.add(node)
        super().topology(node, topology)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Reserve by namespace and name."""
        if node in self._cached:
            self._assumed.setdefault(node, {})[pod.key] = effective_request(pod.pod)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """Release by namespace and name."""
        self._assumed.get(node, {}).pop(pod.key, None)

    def filter_failed(self, node: str) -> None:
        """Mark the node for the next resync."""
        self._failed.add(node)

    def pod_seen(self, pod: SeenPod) -> None:
        """Mark the node as stale if another scheduler placed the pod."""
        self._pods[pod.key] = pod
        self._detect_foreign(pod)

    def pod_gone(self, pod: SeenPod) -> None:
        """Mark the node as stale if another scheduler placed the pod."""
        self._pods.pop(pod.key, None)
        self._detect_foreign(pod)

    def resync(self) -> None:
        """Take the objects of nodes whose pods match the fingerprint, or whose kubelet configuration changed."""
        synced = {node for node in self.dirty if self._agrees(node)} | (self._changed & self.api.keys())
        for node in synced:
            self._cached[node] = self.api[node]
            self._assumed.pop(node, None)
        for marked in (self._failed, self._foreign, self._changed):
            marked.difference_update(synced)
        self.generation += bool(synced)

    def _detect_foreign(self, pod: SeenPod) -> None:
        if self._detect == "None" or not pod.node or pod.scheduler in self._own_schedulers:
            return
        only_exclusive = self._detect == "OnlyExclusiveResources"
        if pod.node in self._cached and (not only_exclusive or is_exclusive(pod.pod, self._listed(pod.node))):
            self._foreign.add(pod.node)

    def _agrees(self, node: str) -> bool:
        """Return whether the object's fingerprint matches the node's pods; False if any of these is missing."""
        topology = self.api.get(node)
        pods = [pod for pod in self._pods.values() if pod.node == node and self._counts(pod)]
        if topology is None or not pods:
            return False
        expected = topology.first(FINGERPRINT)
        if expected is None:
            expected = topology.annotations.get(ANNOTATION, "")
        elif self._only_exclusive(topology):
            listed = self._listed(node)
            pods = [pod for pod in pods if is_exclusive(pod.pod, listed)]
        return pod_fingerprint(pod.key for pod in pods) == expected

    def _only_exclusive(self, topology: Topology) -> bool:
        if self._resync_method == "Autodetect":
            return topology.first(METHOD) == ONLY_EXCLUSIVE
        return self._resync_method == "OnlyExclusiveResources"

    def _listed(self, node: str) -> set[str]:
        cached = self._cached.get(node)
        return set() if cached is None else {name for zone in cached.zones for name in zone.available}


def _runs(pod: SeenPod) -> bool:
    return pod.phase == "Running"


def _is_bound(pod: SeenPod) -> bool:
    return pod.phase != "Pending" and bool(pod.node)
