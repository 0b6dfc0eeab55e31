"""What zones have left beside pods that were placed there: the simple ways to know.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/cache (passthrough.go, discardreserved.go, store.go).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slacktide.streams.decisions.numa.pod import Pod
from slacktide.streams.decisions.numa.resource import Amounts
from slacktide.streams.decisions.numa.topology import Kubelet, NamedZone, kubelet_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A NodeResourceTopology object, or the agent's record of the zones."""

    zones: Sequence[NamedZone]
    policies: Sequence[str] = ()
    attributes: Sequence[tuple[str, str]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    uids: Collection[str] = ()
    """The pods that are counted in what is available. Only the agent's record names them."""

    def kubelet(self) -> Kubelet:
        """What of its configuration is in the object."""
        return kubelet_of(self.policies, self.attributes)

    def first(self, name: str) -> str | None:
        """The value of the first attribute of that name."""
        return next((value for of, value in self.attributes if of == name), None)


class SeenPod(NamedTuple):
    """A pod as the API server has it."""

    namespace: str
    name: str
    uid: str
    scheduler: str
    node: str
    """Empty: not bound."""
    phase: str
    pod: Pod

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class View(NamedTuple):
    """A node's zones as the filter may use them."""

    fresh: bool
    zones: Mapping[str, Amounts] | None
    """What is available by the zone's name; None: no topology."""


class Passthrough:
    """What the node reports, with no pod counted beside it."""

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        self.api = dict(at_start)
        """The objects as the API server has them now."""
        self.generation = 0

    @property
    def dirty(self) -> Collection[str]:
        """Nodes whose reservations may be wrong."""
        return ()

    @property
    def config_changed(self) -> Collection[str]:
        """Nodes whose kubelet was configured anew."""
        return ()

    def view(self, node: str) -> View:
        """The zones of a node."""
        return view_of(self.api.get(node), ())

    def topology(self, node: str, topology: Topology) -> None:
        """An object was created or changed."""
        self.api[node] = topology

    def topology_deleted(self, node: str) -> None:
        """An object was deleted."""
        self.api.pop(node, None)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """A pod was placed on a node."""

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """It does not go there after all."""

    def post_bind(self, node: str, pod: SeenPod) -> None:
        """It was bound."""

    def filter_failed(self, node: str) -> None:
        """The filter refused a pod for the node's zones."""

    def pod_seen(self, pod: SeenPod) -> None:
        """A pod is new or changed."""

    def pod_gone(self, pod: SeenPod) -> None:
        """A pod was deleted."""

    def resync(self) -> None:
        """Time to look at the objects again."""


class DiscardReserved(Passthrough):
    """A node is not used until its pods are bound."""

    def __init__(self, at_start: Mapping[str, Topology]) -> None:
        super().__init__(at_start)
        self._reserved: dict[str, set[str]] = {}

    def view(self, node: str) -> View:
        """No zones while a pod is reserved."""
        return View(fresh=False, zones=None) if self._reserved.get(node) else super().view(node)

    def reserve(self, node: str, pod: SeenPod) -> None:
        """By uid."""
        self._reserved.setdefault(node, set()).add(pod.uid)

    def unreserve(self, node: str, pod: SeenPod) -> None:
        """By uid."""
        self._reserved.get(node, set()).discard(pod.uid)

    post_bind = unreserve


def view_of(topology: Topology | None, reserved: Iterable[Amounts]) -> View:
    """All zones, of whatever type, with each reservation taken from each of them."""
    if topology is None:
        return View(fresh=True, zones=None)
    requests = list(reserved)

    def left(name: str, amount: int) -> int:
        return max(0, amount - sum(request.get(name, 0) for request in requests))

    zones = {zone.name: {name: left(name, of) for name, of in zone.available.items()} for zone in topology.zones}
    return View(fresh=True, zones=zones)
