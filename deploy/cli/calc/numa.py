"""Cases of the rules that place a pod in NUMA zones, and the types that all NUMA cases share."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, Whole, into, kubernetes_names
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.filter import Failure, Filtered, Lack, Node, lack_of, numa_filter, policy_admit
from slacktide.streams.decisions.numa.score import Strategy, numa_score
from slacktide.streams.decisions.numa.topology import (
    ID_MAX,
    ID_MAX_CORRECTED,
    Amounts,
    Container,
    Kubelet,
    NamedZone,
    Pod,
    Policy,
    Qos,
    Scope,
    Zone,
    kubelet_of,
    zones_of,
)

RESOURCES = kubernetes_names("batch", "mid") | {"ephemeral_storage_bytes": "ephemeral-storage"}
"""The Kubernetes names of resources by their keys in cases; a device has its Kubernetes name."""
KEYS = {resource: key for key, resource in RESOURCES.items()}
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

    def pairs(self) -> list[tuple[str, str]]:
        """Return the attributes as pairs."""
        return [(one.name, one.value) for one in self.attributes or ()]

    def named_zones(self, field: str) -> list[NamedZone]:
        """Return the zones of all types."""
        return [one.zone(f"{field}.zones[{at}]") for at, one in enumerate(self.zones or ())]


_KUBELET_NAMES = {
    "max_zones": "max_numa_nodes",
    "cpu_static": "cpu_manager_static",
    "memory_static": "memory_manager_static",
    "prefer_closest": "prefer_closest_numa_nodes",
}


class GivenKubelet(Given, frozen=True, kw_only=True, rename=_KUBELET_NAMES):
    """The kubelet's own configuration."""

    policy: Policy = "none"
    scope: Scope = "container"
    max_zones: Zones = 8
    cpu_static: bool | None = None
    memory_static: bool | None = None
    prefer_closest: bool = False


def _unique_zones(zones: Collection[Zone], field: str) -> None:
    if len({zone.id for zone in zones}) < len(zones):
        raise CaseError(field, "zone ids are not unique; accepted: each id once")


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
            return into(Kubelet, self.kubelet)
        if self.topology is None:
            return Kubelet()
        return kubelet_of(self.topology.topology_policies or (), self.topology.pairs())

    def zones(self) -> list[Zone] | None:
        """Convert the zones to the rule's type; None: there is no topology."""
        if self.topology is None:
            return None
        id_max = ID_MAX_CORRECTED if self.corrected else ID_MAX
        zones = zones_of(self.topology.named_zones("input.topology"), id_max)
        _unique_zones(zones, "input.topology.zones")
        return zones

    def zones_for_sets(self) -> list[Zone] | None:
        """Return the zones, and reject too many of them."""
        zones = self.zones()
        if zones is not None and len(zones) > SETS_ZONES_MAX:
            raise CaseError("input.topology.zones", f"{len(zones)} zones; accepted: at most {SETS_ZONES_MAX}")
        return zones


class GivenNode(Given, frozen=True, kw_only=True):
    """The node's allocatable resources."""

    allocatable: GivenAmounts | None = None


class NumaFilterInput(NodeCase, frozen=True, kw_only=True):
    """A pod, and a node with its zones."""

    node: GivenNode


def calc_numa_filter(given: NumaFilterInput) -> Calculated:
    """Check whether a node's zones can hold a pod."""
    node = Node(
        allocatable=amounts_of(given.node.allocatable, "input.node.allocatable"),
        kubelet=given.settings(),
        zones=given.zones_for_sets() if given.corrected else given.zones(),
        fresh=given.topology_fresh,
    )
    found = numa_filter(given.pod.pod("input.pod"), node, corrected=given.corrected)
    failure = found.failure or Failure(message="")
    first = failure.lacks[0] if failure.lacks else None
    output: dict[str, object] = {
        "fits": found.fits,
        "message": failure.message or None,
        "failed_container": failure.container,
        "failed_kind": failure.kind,
        "failed_resource": None if first is None else first.resource,
        "failed_because": first.why if first else "topology_not_fresh" if found.failure else None,
        "placed": [{"container": one.container, "zone": min(one.zones, default=None)} for one in found.placed],
        "marks_node": found.marks_node,
    }
    lacks = [
        Because(of=f"lacks/{key_of(lack.resource)}", bound=lack.why, terms=terms_of(lack)) for lack in failure.lacks
    ]
    return Calculated(output=output | (_corrected(found) if given.corrected else {}), because=lacks)


def _corrected(found: Filtered) -> dict[str, object]:
    failure = found.failure
    return {
        "placed": [{"container": one.container, "zones": list(one.zones)} for one in found.placed],
        "lacks": [] if failure is None else [key_of(lack.resource) for lack in failure.lacks],
        "moved_containers": list(found.moved),
        "overhead_not_charged": written(found.not_charged),
    }


ZoneId = Annotated[int, msgspec.Meta(ge=0, le=1023)]


class GivenIdZone(Given, frozen=True, kw_only=True):
    """A zone, with distances by the id of the other zone."""

    id: ZoneId
    allocatable: GivenAmounts | None = None
    available: GivenAmounts | None = None
    distances: list[Amount] = []

    def zone(self, field: str) -> Zone:
        """Convert to the rule's type."""
        return Zone(
            id=self.id,
            available=amounts_of(self.available, f"{field}.available"),
            costs=dict(enumerate(self.distances)),
            allocatable=amounts_of(self.allocatable, f"{field}.allocatable"),
        )


class NumaPolicyAdmitInput(Given, frozen=True, kw_only=True, rename=_KUBELET_NAMES):
    """A request, the zones, and the kubelet's policies."""

    policy: Policy
    prefer_closest: bool = False
    cpu_static: bool = False
    memory_static: bool = False
    kube_qos_class: Qos
    request: GivenAmounts | None = None
    zones: Annotated[list[GivenIdZone], msgspec.Meta(max_length=SETS_ZONES_MAX)]
    corrected: bool = False


def calc_numa_policy_admit(given: NumaPolicyAdmitInput) -> Calculated:
    """Decide whether the kubelet admits a request, and to which zones."""
    zones = [one.zone(f"input.zones[{at}]") for at, one in enumerate(given.zones)]
    _unique_zones(zones, "input.zones")
    answer = policy_admit(
        amounts_of(given.request, "input.request"),
        zones,
        into(Kubelet, given),
        guaranteed=given.kube_qos_class == "Guaranteed",
        corrected=given.corrected,
    )
    asked = [(name, amount) for group in answer.groups for name, amount in group.items()]
    because = [
        Because(
            of=f"request/{key_of(name)}",
            bound="aligned" if answer.preferred else "not_aligned",
            terms=terms_of(lack_of(name, amount, zones, "not_aligned")),
        )
        for name, amount in asked
    ]
    output: dict[str, object] = {"admit": answer.admit, "preferred": answer.preferred, "zones": list(answer.zones)}
    return Calculated(output=output, because=because)


class NumaScoreInput(NodeCase, frozen=True, kw_only=True):
    """A pod, a node's zones, and the scoring settings."""

    strategy: Strategy
    resource_weights: dict[str, Whole] | None = None


def calc_numa_score(given: NumaScoreInput) -> Calculated:
    """Compute the score of a node's zones for a pod."""
    weights = given.resource_weights or {}
    zones = given.zones_for_sets() if given.strategy == "LeastNUMANodes" else given.zones()
    scored = numa_score(
        given.pod.pod("input.pod"),
        given.settings(),
        zones if given.topology_fresh else None,
        given.strategy,
        {resource_of(key, "input.resource_weights"): weight for key, weight in weights.items()},
        corrected=given.corrected,
    )
    return Calculated(output={"score": scored.score}, because=[scored.because])
