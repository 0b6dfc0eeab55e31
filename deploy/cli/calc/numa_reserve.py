"""Cases of the rules that count resources of NUMA zones: batch shares, fingerprints and reservations."""

from __future__ import annotations

from typing import Literal, TypeVar

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenResources, into
from slacktide.deploy.cli.calc.numa import GivenPod, GivenTopology, written
from slacktide.schemas.errors import CaseError
from slacktide.schemas.zones import Zone, ZoneId, ZoneResources
from slacktide.streams.decisions.because import Because
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
    View,
    pod_fingerprint,
)
from slacktide.streams.decisions.resources.batch_resource import ZoneBatch, batch_zones

FIELDS = (("cpu_milli", "batch_cpu_milli", "milli"), ("mem_bytes", "batch_memory_bytes", "bytes"))


class GivenZone(Given, frozen=True, kw_only=True):
    """A zone in a node's record; the zone does not provide an absent amount."""

    id: ZoneId
    allocatable: GivenResources
    available: GivenResources


class NumaBatchZonesInput(Given, frozen=True, kw_only=True):
    """A node's batch resources (null: it has none) and its zones."""

    batch_cpu_milli: Amount | None = None
    batch_memory_bytes: Amount | None = None
    zones: list[GivenZone]


def calc_numa_batch_zones(given: NumaBatchZonesInput) -> Calculated:
    """Divide a node's batch resources among its zones."""
    ids = [one.id for one in given.zones]
    zones = [
        Zone(id=one.id, allocatable=into(ZoneResources, one.allocatable), available=into(ZoneResources, one.available))
        for one in given.zones
    ]
    parts = batch_zones(given.batch_cpu_milli, given.batch_memory_bytes, zones)
    shares = [
        (zone, name, unit, share)
        for zone, part in zip(ids, parts, strict=True)
        for field, name, unit in FIELDS
        if (share := getattr(part, field)) is not None
    ]
    return Calculated(
        output={"zones": [{"id": zone} | _written(part) for zone, part in zip(ids, parts, strict=True)]},
        because=[share.because(f"zones/{zone}/{name}", unit) for zone, name, unit, share in shares],
    )


def _written(part: ZoneBatch) -> dict[str, int]:
    return {name: share.amount for field, name, _ in FIELDS if (share := getattr(part, field)) is not None}


class GivenName(Given, frozen=True, kw_only=True):
    """A pod's name."""

    namespace: str
    name: str


class NumaPodFingerprintInput(Given, frozen=True, kw_only=True):
    """Pods of a node."""

    pods: list[GivenName]


def calc_numa_pod_fingerprint(given: NumaPodFingerprintInput) -> Calculated:
    """Compute the fingerprint of a set of pods."""
    text = pod_fingerprint((pod.namespace, pod.name) for pod in given.pods)
    because = Because(of="fingerprint", bound="hashed", terms={"pod_count": len(given.pods)})
    return Calculated(output={"fingerprint": text}, because=[because])


T = TypeVar("T")
Variant = Literal["over_reserve", "discard_reserved", "passthrough", "until_seen"]


class GivenSeenPod(GivenPod, frozen=True, kw_only=True, rename={"scheduler": "scheduler_name"}):
    """A pod of the API server."""

    namespace: str = "default"
    name: str
    uid: str = ""
    scheduler: str = ""
    node: str = ""
    phase: str = ""

    def seen(self, field: str) -> SeenPod:
        """Convert to the rule's type; the name replaces a missing uid."""
        return into(SeenPod, self, uid=self.uid or self.name, pod=self.pod(field))


class GivenNodeTopology(GivenTopology, frozen=True, kw_only=True):
    """A node's topology object; ``uids``: pods that the agent's record counts."""

    node: str
    annotations: dict[str, str] | None = None
    uids: list[str] | None = None

    def object(self, field: str) -> Topology:
        """Convert to the rule's type."""
        return Topology(
            zones=self.named_zones(field),
            policies=self.topology_policies or (),
            attributes=self.pairs(),
            annotations=self.annotations or {},
            uids=frozenset(self.uids or ()),
        )


class GivenEvent(Given, frozen=True, kw_only=True):
    """An event."""

    type: Literal[
        "topology", "topology_deleted", "reserve", "unreserve", "post_bind", "filter_failed", "pod_seen", "pod_gone",
        "resync",
    ]  # fmt: skip
    node: str | None = None
    topology: GivenNodeTopology | None = None
    pod: GivenSeenPod | None = None


class NumaOverreserveInput(Given, frozen=True, kw_only=True):
    """Topologies, and events in order."""

    variant: Variant = "over_reserve"
    resync_method: Resync = "Autodetect"
    pods_counted: Counted = "shared"
    foreign_pods_detect: Detect = "All"
    own_scheduler_names: list[str] | None = None
    topologies_at_start: list[GivenNodeTopology] | None = None
    events: list[GivenEvent] | None = None

    def cache(self) -> Passthrough:
        """Create the variant's cache in its initial state."""
        field = "input.topologies_at_start"
        at_start = {one.node: one.object(f"{field}[{at}]") for at, one in enumerate(self.topologies_at_start or ())}
        simple = {"discard_reserved": DiscardReserved, "passthrough": Passthrough, "until_seen": UntilSeen}
        if self.variant in simple:
            return simple[self.variant](at_start)
        return OverReserve(
            at_start,
            resync_method=self.resync_method,
            counted=self.pods_counted,
            detect=self.foreign_pods_detect,
            own_schedulers=self.own_scheduler_names or (),
        )


def calc_numa_overreserve(given: NumaOverreserveInput) -> Calculated:
    """Compute the zones' free resources after subtracting reserved pods, for each event."""
    cache = given.cache()
    nodes = {one.node for one in given.topologies_at_start or ()}
    after, because = [], []
    for at, event in enumerate(given.events or ()):
        _apply(event, cache, f"input.events[{at}]")
        nodes |= set() if event.topology is None else {event.topology.node}
        after.append(
            {
                "generation": cache.generation,
                "dirty": sorted(cache.dirty),
                "config_changed": sorted(cache.config_changed),
                "views": {node: _shown(cache.view(node)) for node in sorted(nodes)},
            }
        )
        terms: dict[str, int | float] = {"generation": cache.generation, "dirty_count": len(cache.dirty)}
        because.append(Because(of=f"after_each_event/{at}", bound=event.type, terms=terms))
    return Calculated(output={"after_each_event": after}, because=because)


def _apply(event: GivenEvent, cache: Passthrough, field: str) -> None:
    if event.type == "resync":
        cache.resync()
    elif event.type == "topology":
        topology = _needed(event.topology, f"{field}.topology")
        cache.topology(topology.node, topology.object(f"{field}.topology"))
    elif event.type == "topology_deleted":
        cache.topology_deleted(_needed(event.node, f"{field}.node"))
    elif event.type == "filter_failed":
        cache.filter_failed(_needed(event.node, f"{field}.node"))
    else:
        _apply_to_pod(event, cache, field)


def _apply_to_pod(event: GivenEvent, cache: Passthrough, field: str) -> None:
    pod = _needed(event.pod, f"{field}.pod").seen(f"{field}.pod")
    of_pod = {"pod_seen": cache.pod_seen, "pod_gone": cache.pod_gone}
    of_node = {"reserve": cache.reserve, "unreserve": cache.unreserve, "post_bind": cache.post_bind}
    if event.type in of_pod:
        of_pod[event.type](pod)
    else:
        of_node[event.type](_needed(event.node, f"{field}.node"), pod)


def _needed(value: T | None, field: str) -> T:
    if value is None:
        raise CaseError(field, "missing: an event of this type requires a value")
    return value


def _shown(view: View) -> dict[str, object]:
    zones = view.zones
    return {
        "fresh": view.fresh,
        "zones": None if zones is None else {name: written(amounts) for name, amounts in zones.items()},
    }
