"""Defines types shared by the cases of NUMA zones: amounts, pods and topologies."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Given
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.pod import Container, Pod, Qos
from slacktide.streams.decisions.numa.topology import (
    ID_MAX,
    ID_MAX_CORRECTED,
    Amounts,
    Kubelet,
    NamedZone,
    Policy,
    Scope,
    Zone,
    kubelet_of,
    zones_of,
)

KEYS = {
    "cpu": "cpu_milli",
    "memory": "memory_bytes",
    "ephemeral-storage": "ephemeral_storage_bytes",
    **{f"kubernetes.io/{tier}-cpu": f"{tier}_cpu_milli" for tier in ("batch", "mid")},
    **{f"kubernetes.io/{tier}-memory": f"{tier}_memory_bytes" for tier in ("batch", "mid")},
}
"""The keys of resources in cases; a device has its Kubernetes name."""
RESOURCES = {key: resource for resource, key in KEYS.items()}
GivenAmounts = dict[str, Amount]
Zones = Annotated[int, msgspec.Meta(ge=1, le=1024)]
SETS_ZONES_MAX = 16
"""The limit of rules that try all sets of zones."""
_HUGEPAGES = re.compile(r"hugepages_(\w+)_bytes")


def amounts_of(given: GivenAmounts | None, field: str) -> dict[str, int]:
    """Convert to the rule's type."""
    return {resource_of(key, field): amount for key, amount in (given or {}).items()}


def resource_of(key: str, field: str) -> str:
    """Convert a case's resource key to the Kubernetes name."""
    if key in KEYS or key.startswith("hugepages-"):
        raise CaseError(field, f"{key}: accepted: {key_of(key)}, or the name of a device")
    pages = _HUGEPAGES.fullmatch(key)
    return f"hugepages-{pages[1]}" if pages else RESOURCES.get(key, key)


def key_of(resource: str) -> str:
    """Convert a Kubernetes name to a case's resource key."""
    size = resource.removeprefix("hugepages-")
    return KEYS.get(resource, resource) if size == resource else f"hugepages_{size}_bytes"


def written(amounts: Amounts) -> dict[str, int]:
    """Convert amounts to a case's format."""
    return {key_of(resource): amount for resource, amount in amounts.items()}


def terms_of(lack: Lack) -> Terms:
    """Return the request, and the free amount of the best zone."""
    unit = key_of(lack.resource).rpartition("_")[2]
    unit = unit if unit in {"milli", "bytes"} else "count"
    asked: Terms = {f"asked_{unit}": lack.asked}
    return asked if lack.best_zone is None else {**asked, "best_zone": lack.best_zone, f"free_{unit}": lack.free}


class GivenContainer(Given, frozen=True, kw_only=True):
    """A container; ``restart_policy_always``: an init container that is a sidecar."""

    name: str = ""
    requests: GivenAmounts | None = None
    restart_policy_always: bool = False

    def container(self, field: str) -> Container:
        """Convert to the rule's type."""
        return Container(
            name=self.name, requests=amounts_of(self.requests, f"{field}.requests"), sidecar=self.restart_policy_always
        )


class GivenPod(Given, frozen=True, kw_only=True):
    """A pod; ``pod_level_requests``: the requests of the whole pod."""

    kube_qos_class: Qos
    init_containers: list[GivenContainer] | None = None
    containers: list[GivenContainer] | None = None
    overhead: GivenAmounts | None = None
    pod_level_requests: GivenAmounts | None = None

    def pod(self, field: str) -> Pod:
        """Convert to the rule's type."""
        inits = self.init_containers or ()
        level = self.pod_level_requests
        return Pod(
            qos=self.kube_qos_class,
            inits=[one.container(f"{field}.init_containers[{at}]") for at, one in enumerate(inits)],
            containers=[one.container(f"{field}.containers[{at}]") for at, one in enumerate(self.containers or ())],
            overhead=amounts_of(self.overhead, f"{field}.overhead"),
            pod_level=None if level is None else amounts_of(level, f"{field}.pod_level_requests"),
        )


class GivenCost(Given, frozen=True, kw_only=True):
    """The distance to a zone."""

    name: str
    value: Amount


class GivenAttribute(Given, frozen=True, kw_only=True):
    """An attribute of a topology object."""

    name: str
    value: str


class GivenZone(Given, frozen=True, kw_only=True):
    """A zone of a topology object."""

    name: str
    type: str
    available: GivenAmounts | None = None
    allocatable: GivenAmounts | None = None
    costs: list[GivenCost] | None = None

    def zone(self, field: str) -> NamedZone:
        """Convert to the rule's type."""
        return NamedZone(
            name=self.name,
            type=self.type,
            available=amounts_of(self.available, f"{field}.available"),
            costs=[(one.name, one.value) for one in self.costs or ()],
            allocatable=None if self.allocatable is None else amounts_of(self.allocatable, f"{field}.allocatable"),
        )


class GivenTopology(Given, frozen=True, kw_only=True):
    """A NodeResourceTopology object."""

    topology_policies: list[str] | None = None
    attributes: list[GivenAttribute] | None = None
    zones: list[GivenZone] | None = None

    def kubelet(self) -> Kubelet:
        """Return the kubelet's settings in the attributes."""
        return kubelet_of(self.topology_policies or (), self.pairs())

    def pairs(self) -> list[tuple[str, str]]:
        """Return the attributes as pairs."""
        return [(one.name, one.value) for one in self.attributes or ()]

    def named_zones(self, field: str) -> list[NamedZone]:
        """Return the zones of all types."""
        return [one.zone(f"{field}.zones[{at}]") for at, one in enumerate(self.zones or ())]


class GivenKubelet(Given, frozen=True, kw_only=True):
    """The kubelet's own configuration."""

    policy: Policy = "none"
    scope: Scope = "container"
    max_numa_nodes: Zones = 8
    cpu_manager_static: bool | None = None
    memory_manager_static: bool | None = None
    prefer_closest_numa_nodes: bool = False

    def kubelet(self) -> Kubelet:
        """Convert to the rule's type."""
        return Kubelet(
            policy=self.policy,
            scope=self.scope,
            max_zones=self.max_numa_nodes,
            cpu_static=self.cpu_manager_static,
            memory_static=self.memory_manager_static,
            prefer_closest=self.prefer_closest_numa_nodes,
        )


class NodeCase(Given, frozen=True, kw_only=True):
    """A pod and a node's topology.

    ``kubelet`` overrides the topology's attributes. ``corrected``: decide as Slacktide, not as the reference.
    """

    pod: GivenPod
    topology: GivenTopology | None = None
    topology_fresh: bool = True
    kubelet: GivenKubelet | None = None
    corrected: bool = False

    def settings(self) -> Kubelet:
        """Return the kubelet's settings."""
        if self.kubelet is not None:
            return self.kubelet.kubelet()
        return Kubelet() if self.topology is None else self.topology.kubelet()

    def zones(self) -> list[Zone] | None:
        """Convert the zones to the rule's type; None: there is no topology."""
        if self.topology is None:
            return None
        id_max = ID_MAX_CORRECTED if self.corrected else ID_MAX
        zones = zones_of(self.topology.named_zones("input.topology"), id_max)
        if len({zone.id for zone in zones}) < len(zones):
            raise CaseError("input.topology.zones", "zone ids are not unique; accepted: each id once")
        return zones

    def zones_for_sets(self) -> list[Zone] | None:
        """Return the zones, and reject too many of them."""
        zones = self.zones()
        if zones is not None and len(zones) > SETS_ZONES_MAX:
            raise CaseError("input.topology.zones", f"{len(zones)} zones; accepted: at most {SETS_ZONES_MAX}")
        return zones
