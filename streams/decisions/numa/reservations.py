"""Computes available amounts of zones under reservations: the base class, and all variants except ``OverReserve``.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/cache (passthrough.go, discardreserved.go, store.go).
``UntilSeen`` is Slacktide's own; docs/numa-rules.md compares it with the reference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slacktide.streams.decisions.numa.topology import (
    CPU,
    Amounts,
    Kubelet,
    NamedZone,
    Pod,
    corrected_request,
    exclusive_cpu_milli,
    is_affine,
    kubelet_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A NodeResourceTopology object, or the agent's record of the zones."""

    zones: Sequence[NamedZone]
    policies: Sequence[str] = ()
    attributes: Sequence[tuple[str, str]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    uids: Collection[str] = ()
    """Pods that available amounts include. Only the agent's record names them."""

    def kubelet(self) -> Kubelet:
        """Return the kubelet configuration in the object."""
        return kubelet_of(self.policies, self.attributes)

    def first(self, name: str) -> str | None:
        """Return the value of the first attribute of that name."""
        return next((value for of, value in self.attributes if of == name), None)


class SeenPod(NamedTuple):
    """A pod in the API server."""

    namespace: str
    name: str
    uid: str
    scheduler: str
    node: str
    phase: str
    pod: Pod

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name."""
        return self.namespace, self.name


class View(NamedTuple):
    """A node's zones as the filter reads them."""

    fresh: bool
    zones: Mapping[str, Amounts] | None
    """Available amounts by zone name; None: no topology."""


class Passthrough:
    """Uses the node's report without reservations."""

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        self.api = dict(at_start)
        self.generation = 0

    @property
    def dirty(self) -> Collection[str]:
        """Return nodes whose reservations may be wrong."""
        return ()

    @property
    def config_changed(self) -> Collection[str]:
        """Return nodes whose kubelet configuration changed."""
        return ()

    def view(self, node: str) -> View:
        """Return the zones of a node."""
        return view_of(self.api.get(node), ())

    def topology(self, node: str, topology: Topology) -> None:
        """Take a created or changed object."""
        self.api[node] = topology

    def topology_deleted(self, node: str) -> None:
        """Take the deletion of an object."""
        self.api.pop(node, None)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Reserve a pod on a node."""

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """Release a reservation."""

    def post_bind(self, node: str, pod: SeenPod) -> None:
        """Take the binding of a pod."""

    def filter_failed(self, node: str) -> None:
        """Take a filter's rejection because of the node's zones."""

    def pod_seen(self, pod: SeenPod) -> None:
        """Take a new or changed pod."""

    def pod_gone(self, pod: SeenPod) -> None:
        """Take the deletion of a pod."""

    def resync(self) -> None:
        """Read the objects again."""


class DiscardReserved(Passthrough):
    """Skips a node while it has reserved pods that are not bound."""

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        super().__init__(at_start)
        self._reserved: dict[str, set[str]] = {}

    def view(self, node: str) -> View:
        """Return no zones while a pod is reserved."""
        return View(fresh=False, zones=None) if self._reserved.get(node) else super().view(node)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Reserve by uid."""
        self._reserved.setdefault(node, set()).add(pod.uid)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """Release by uid."""
        self._reserved.get(node, set()).discard(pod.uid)

    post_bind = unreserve


def view_of(topology: Topology | None, reserved: Iterable[Amounts]) -> View:
    """Return all zones, of any type, minus all reservations in each."""
    if topology is None:
        return View(fresh=True, zones=None)
    requests = list(reserved)

    def left(name: str, amount: int) -> int:
        return max(0, amount - sum(request.get(name, 0) for request in requests))

    zones = {zone.name: {name: left(name, of) for name, of in zone.available.items()} for zone in topology.zones}
    return View(fresh=True, zones=zones)


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
