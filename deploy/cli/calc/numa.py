"""Cases of the rules of NUMA zones: where a pod fits, batch shares, fingerprints and reservations."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, GivenResources, into, kubernetes_names
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.schemas.zones import Zone as ZoneRecord
from slacktide.schemas.zones import ZoneId, ZoneResources
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.filter import Failure, Lack, Node, lack_of, numa_filter, policy_admit
from slacktide.streams.decisions.numa.reservations import (
    Counted,
    Detect,
    DiscardReserved,
    OverReserve,
    Passthrough,
    Resync,
    SeenPod,
    Topology,
    UntilSeen,
    pod_fingerprint,
)
from slacktide.streams.decisions.numa.score import Strategy, numa_score
from slacktide.streams.decisions.numa.topology import (
    ID_MAX,
    ID_MAX_CORRECTED,
    Amounts,
    Container,
    Kubelet,
    NamedZone,
    Pod,
    Qos,
    Zone,
    zones_of,
)
from slacktide.streams.decisions.resources.batch_resource import batch_zones

RESOURCES = kubernetes_names("batch", "mid") | {"ephemeral_storage_bytes": "ephemeral-storage"}
"""The Kubernetes names of resources by their keys in cases; a device has its Kubernetes name."""
KEYS = {resource: key for key, resource in RESOURCES.items()}
Zones = Annotated[int, msgspec.Meta(ge=1, le=1024)]
SETS_ZONES_MAX = 16
"""The limit of rules that try all sets of zones."""
_HUGEPAGES = re.compile(r"hugepages_(\w+)_bytes")


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


def _by_resource(given: Mapping[str, int], path: str) -> dict[str, int]:
    return {resource_of(key, path): amount for key, amount in given.items()}


GivenAmounts = Annotated[Amounts, By(_by_resource, dict[str, Amount])]
_AMOUNTS: tuple[Any, ...] = (Nullable[GivenAmounts], {})
_CONTAINERS = (Nullable[list[Annotated[Container, Form(strict=True, name="", requests=_AMOUNTS)]]], ())
GivenPod = Annotated[
    Pod, Form(containers=_CONTAINERS, inits=_CONTAINERS, overhead=_AMOUNTS, pod_level=GivenAmounts | None)
]
"""A pod; ``pod_level_requests``: the requests of the whole pod."""


class Cost(NamedTuple):
    """The distance to a zone."""

    name: str
    value: int


class Attribute(NamedTuple):
    """An attribute of a topology object."""

    name: str
    value: str


_ZONE = Form(
    available=_AMOUNTS, costs=Nullable[list[Annotated[Cost, Form(value=Amount)]]], allocatable=GivenAmounts | None
)
TOPOLOGY: dict[str, Any] = {
    "zones": (Nullable[list[Annotated[NamedZone, _ZONE]]], ()),
    "attributes": Nullable[list[Annotated[Attribute, Form()]]],
}
"""Fields of a NodeResourceTopology object for which cases have another type."""


def _unique_zones(zones: Collection[Zone], field: str) -> None:
    if len({zone.id for zone in zones}) < len(zones):
        raise CaseError(field, "zone ids are not unique; accepted: each id once")


class NodeCase(Given, frozen=True, kw_only=True):
    """A pod and a node's topology.

    ``kubelet`` overrides the topology's attributes. ``corrected``: decide as Slacktide, not as the reference.
    """

    pod: GivenPod
    topology: Annotated[Topology, Form("zones policies attributes", **TOPOLOGY)] | None = None
    topology_fresh: bool = True
    kubelet: Annotated[Kubelet, Form(strict=True, max_zones=(Zones, 8))] | None = None
    corrected: bool = False

    def settings(self) -> Kubelet:
        """Return the kubelet's settings."""
        return self.kubelet or (Kubelet() if self.topology is None else self.topology.kubelet())

    def zones(self, *, sets: bool) -> list[Zone] | None:
        """Convert the zones to the rule's type; None: there is no topology. ``sets``: reject too many of them."""
        if self.topology is None:
            return None
        zones = zones_of(self.topology.zones, ID_MAX_CORRECTED if self.corrected else ID_MAX)
        _unique_zones(zones, "input.topology.zones")
        if sets and len(zones) > SETS_ZONES_MAX:
            raise CaseError("input.topology.zones", f"{len(zones)} zones; accepted: at most {SETS_ZONES_MAX}")
        return zones


class _Node(Given, frozen=True, kw_only=True):
    allocatable: Nullable[GivenAmounts] = {}


class _NumaFilterInput(NodeCase, frozen=True, kw_only=True):
    node: _Node


def calc_numa_filter(given: _NumaFilterInput) -> Calculated:
    """Check whether a node's zones can hold a pod."""
    node = Node(
        allocatable=given.node.allocatable,
        kubelet=given.settings(),
        zones=given.zones(sets=given.corrected),
        fresh=given.topology_fresh,
    )
    found = numa_filter(given.pod, node, corrected=given.corrected)
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
    if given.corrected:
        output |= {
            "placed": [{"container": one.container, "zones": list(one.zones)} for one in found.placed],
            "lacks": [key_of(lack.resource) for lack in failure.lacks],
            "moved_containers": list(found.moved),
            "overhead_not_charged": written(found.not_charged),
        }
    return Calculated(output=output, because=lacks)


GivenIdZone = Annotated[
    Zone,
    Form(
        id=Annotated[int, msgspec.Meta(ge=0, le=1023)],
        allocatable=_AMOUNTS,
        available=_AMOUNTS,
        costs=Annotated[dict[int, int], By(lambda distances, _: dict(enumerate(distances)), list[Amount])],
    ),
]
"""A zone, with distances by the id of the other zone."""
_ALIGNED = Form(
    "policy prefer_closest cpu_static memory_static",
    strict=True,
    policy=...,
    cpu_static=(bool, False),
    memory_static=(bool, False),
)


def calc_numa_policy_admit(
    *,
    kubelet: Flat[Annotated[Kubelet, _ALIGNED]],
    kube_qos_class: Qos,
    request: GivenAmounts | None = None,
    zones: Annotated[list[GivenIdZone], msgspec.Meta(max_length=SETS_ZONES_MAX)],
    corrected: bool = False,
) -> Calculated:
    """Decide whether the kubelet admits a request, and to which zones."""
    _unique_zones(zones, "input.zones")
    guaranteed = kube_qos_class == "Guaranteed"
    answer = policy_admit(request or {}, zones, kubelet, guaranteed=guaranteed, corrected=corrected)
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


class _NumaScoreInput(NodeCase, frozen=True, kw_only=True):
    strategy: Strategy
    resource_weights: Nullable[Annotated[dict[str, int], By(_by_resource, dict[str, Whole])]] = {}


def calc_numa_score(given: _NumaScoreInput) -> Calculated:
    """Compute the score of a node's zones for a pod."""
    zones = given.zones(sets=given.strategy == "LeastNUMANodes")
    scored = numa_score(
        given.pod,
        given.settings(),
        zones if given.topology_fresh else None,
        given.strategy,
        given.resource_weights,
        corrected=given.corrected,
    )
    return Calculated(output={"score": scored.score}, because=[scored.because])


FIELDS = (("cpu_milli", "batch_cpu_milli", "milli"), ("mem_bytes", "batch_memory_bytes", "bytes"))
_RESOURCES = Annotated[ZoneResources, By(lambda resources, _: into(ZoneResources, resources), GivenResources)]
GivenZone = Annotated[
    ZoneRecord, Form("id allocatable available", id=ZoneId, allocatable=_RESOURCES, available=_RESOURCES)
]
"""A zone in a node's record; the zone does not provide an absent amount."""


def calc_numa_batch_zones(
    *, batch_cpu_milli: Amount | None = None, batch_memory_bytes: Amount | None = None, zones: Sequence[GivenZone]
) -> Calculated:
    """Divide a node's batch resources (null: it has none) among its zones."""
    shown: list[dict[str, int]] = []
    because = []
    for zone, part in zip(zones, batch_zones(batch_cpu_milli, batch_memory_bytes, zones), strict=True):
        shown.append({"id": zone.id})
        for field, name, unit in FIELDS:
            share = getattr(part, field)
            if share is not None:
                shown[-1][name] = share.amount
                because.append(share.because(f"zones/{zone.id}/{name}", unit))
    return Calculated(output={"zones": shown}, because=because)


class PodName(NamedTuple):
    """A pod's name."""

    namespace: str
    name: str


def calc_numa_pod_fingerprint(*, pods: Sequence[Annotated[PodName, Form()]]) -> Calculated:
    """Compute the fingerprint of a set of pods."""
    text = pod_fingerprint(pods)
    because = Because(of="fingerprint", bound="hashed", terms={"pod_count": len(pods)})
    return Calculated(output={"fingerprint": text}, because=[because])


T = TypeVar("T")
Variant = Literal["over_reserve", "discard_reserved", "passthrough", "until_seen"]
_TEXT = (str, "")
GivenSeenPod = Annotated[
    SeenPod,
    Form(
        "pod namespace name uid scheduler node phase",
        namespace=(str, "default"),
        uid=_TEXT,
        scheduler=_TEXT,
        node=_TEXT,
        phase=_TEXT,
        pod=Flat[GivenPod],
    ),
]
"""A pod of the API server."""
_UIDS = Nullable[Annotated[frozenset[str], By(lambda uids, _: frozenset(uids), list[str])]]


class GivenTopology(Given, frozen=True, kw_only=True):
    """A node's topology object; ``uids``: pods that the agent's record counts."""

    node: str
    object: Flat[Annotated[Topology, Form(uids=_UIDS, **TOPOLOGY)]]


class _Event(Given, frozen=True, kw_only=True):
    type: Literal[
        "topology", "topology_deleted", "reserve", "unreserve", "post_bind", "filter_failed", "pod_seen", "pod_gone",
        "resync",
    ]  # fmt: skip
    node: str | None = None
    topology: GivenTopology | None = None
    pod: GivenSeenPod | None = None


def calc_numa_overreserve(
    *,
    variant: Variant = "over_reserve",
    resync_method: Resync = "Autodetect",
    pods_counted: Counted = "shared",
    foreign_pods_detect: Detect = "All",
    own_scheduler_names: Nullable[Sequence[str]] = (),
    topologies_at_start: Nullable[Sequence[GivenTopology]] = (),
    events: Nullable[Sequence[_Event]] = (),
) -> Calculated:
    """Compute the zones' free resources after subtracting reserved pods, for each event."""
    at_start = {one.node: one.object for one in topologies_at_start}
    simple = {"discard_reserved": DiscardReserved, "passthrough": Passthrough, "until_seen": UntilSeen}
    cache = (
        simple[variant](at_start)
        if variant in simple
        else OverReserve(
            at_start,
            resync_method=resync_method,
            counted=pods_counted,
            detect=foreign_pods_detect,
            own_schedulers=own_scheduler_names,
        )
    )
    nodes, after, because = set(at_start), [], []
    for at, event in enumerate(events):
        _apply(event, cache, f"input.events[{at}]")
        nodes |= set() if event.topology is None else {event.topology.node}
        after.append(
            {
                "generation": cache.generation,
                "dirty": sorted(cache.dirty),
                "config_changed": sorted(cache.config_changed),
                "views": {
                    node: {
                        "fresh": view.fresh,
                        "zones": view.zones and {name: written(amounts) for name, amounts in view.zones.items()},
                    }
                    for node in sorted(nodes)
                    for view in (cache.view(node),)
                },
            }
        )
        terms: dict[str, int | float] = {"generation": cache.generation, "dirty_count": len(cache.dirty)}
        because.append(Because(of=f"after_each_event/{at}", bound=event.type, terms=terms))
    return Calculated(output={"after_each_event": after}, because=because)


def _apply(event: _Event, cache: Passthrough, field: str) -> None:
    def needed(value: T | None, name: str) -> T:
        if value is None:
            raise CaseError(f"{field}.{name}", "missing: an event of this type requires a value")
        return value

    of_node = {"topology_deleted": cache.topology_deleted, "filter_failed": cache.filter_failed}
    of_pod = {"pod_seen": cache.pod_seen, "pod_gone": cache.pod_gone}
    of_both = {"reserve": cache.reserve, "unreserve": cache.unreserve, "post_bind": cache.post_bind}
    if event.type == "resync":
        cache.resync()
    elif event.type == "topology":
        topology = needed(event.topology, "topology")
        cache.topology(topology.node, topology.object)
    elif event.type in of_node:
        of_node[event.type](needed(event.node, "node"))
    else:
        pod = needed(event.pod, "pod")
        pod = pod._replace(uid=pod.uid or pod.name)
        if event.type in of_pod:
            of_pod[event.type](pod)
        else:
            of_both[event.type](needed(event.node, "node"), pod)
