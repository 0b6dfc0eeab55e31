"""Computes available amounts of zones under reservations.

``OverReserve`` charges reserved pods to every zone until the node's report includes them, by a fingerprint of its pods.
Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/cache (passthrough.go,
discardreserved.go, overreserve.go, store.go, foreign_pods.go, attr_watch.go) and resourcerequests/exclusive.go;
podfingerprint v0.2.2, podfingerprint.go (format v001); github.com/Cyan4973/xxHash, doc/xxhash_spec.md. ``UntilSeen`` is
Slacktide's own; docs/numa-rules.md compares it with the reference.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import unpack_from
from typing import Literal, NamedTuple

from slacktide.streams.decisions.numa.topology import (
    CPU,
    Amounts,
    Kubelet,
    NamedZone,
    Pod,
    corrected_request,
    effective_request,
    exclusive_cpu_milli,
    is_affine,
    is_memory,
    is_native,
    kubelet_of,
    whole_cpus,
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
            self._held.get(node, {}).pop(uid, None)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """Reserve by uid, unless the record names the pod."""
        recorded = self.api.get(node)
        if recorded is None or pod.uid not in recorded.uids:
            self._held.setdefault(node, {})[pod.uid] = reserved_request(pod.pod)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """Release by uid."""
        self._held.get(node, {}).pop(pod.uid, None)

    def pod_seen(self, pod: SeenPod) -> None:
        """Release a pod that ended or was bound to another node."""
        done = pod.phase in {"Succeeded", "Failed"}
        for node in list(self._held):
            if done or pod.node not in {"", node}:
                self.unreserve(node, pod)

    def pod_gone(self, pod: SeenPod) -> None:
        """Release the pod on all nodes."""
        for node in self._held:
            self.unreserve(node, pod)


_MASK = 2**64 - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_STRIPE = 32


def xxh64(data: bytes, seed: int = 0) -> int:
    """Return the hash as an unsigned 64-bit number."""
    stripes = len(data) // _STRIPE * _STRIPE
    hashed = seed + _P5
    if stripes:
        lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
        for at in range(0, stripes, _STRIPE):
            lanes = [_round(lane, word) for lane, word in zip(lanes, unpack_from("<4Q", data, at), strict=True)]
        hashed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            hashed = (hashed ^ _round(0, lane)) * _P1 + _P4 & _MASK
    hashed = hashed + len(data) & _MASK
    at = stripes
    while at + 8 <= len(data):
        hashed ^= _round(0, unpack_from("<Q", data, at)[0])
        hashed = _rotated(hashed, 27) * _P1 + _P4 & _MASK
        at += 8
    if at + 4 <= len(data):
        hashed ^= unpack_from("<I", data, at)[0] * _P1 & _MASK
        hashed = _rotated(hashed, 23) * _P2 + _P3 & _MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotated(hashed ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK


PREFIX = "pfp0v001"


def pod_fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods given by namespace and name. Duplicates count."""
    hashes = sorted(xxh64(name.encode(), seed=xxh64(namespace.encode())) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(one.to_bytes(8, 'little') for one in hashes)):016x}"


def is_exclusive(pod: Pod, listed: Collection[str]) -> bool:
    """Return whether an app container or sidecar requests exclusive resources, given what the node's zones list."""

    def exclusive(name: str, amount: int) -> bool:
        if not is_native(name):
            return name in listed
        return pod.guaranteed and ((name == CPU and whole_cpus(amount)) or (is_memory(name) and amount > 0))

    running = chain((one for one in pod.inits if one.sidecar), pod.containers)
    return any(exclusive(name, amount) for one in running for name, amount in one.requests.items())


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
        self._counted = counted
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
        pods = [pod for pod in self._pods.values() if pod.node == node]
        if self._counted == "shared":
            pods = [pod for pod in pods if pod.phase == "Running"]
        else:
            pods = [pod for pod in pods if pod.phase != "Pending" and pod.node]
        if topology is None or not pods:
            return False
        expected = topology.first(FINGERPRINT)
        if expected is None:
            expected = topology.annotations.get(ANNOTATION, "")
        elif self._resync_method == "OnlyExclusiveResources" or (
            self._resync_method == "Autodetect" and topology.first(METHOD) == ONLY_EXCLUSIVE
        ):
            listed = self._listed(node)
            pods = [pod for pod in pods if is_exclusive(pod.pod, listed)]
        return pod_fingerprint(pod.key for pod in pods) == expected

    def _listed(self, node: str) -> set[str]:
        cached = self._cached.get(node)
        return set() if cached is None else {name for zone in cached.zones for name in zone.available}
