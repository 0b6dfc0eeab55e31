"""Cases of the rules that count resources of NUMA zones: batch shares, fingerprints and reservations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

from slacktide.deploy.cli.calc.case import Calculated, GivenResources, into
from slacktide.deploy.cli.calc.forms import Amount, By, Flat, Form, Given, Nullable
from slacktide.deploy.cli.calc.numa import TOPOLOGY, GivenPod, written
from slacktide.schemas.errors import CaseError
from slacktide.schemas.zones import Zone, ZoneId, ZoneResources
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.batch_zones import batch_zones
from slacktide.streams.decisions.numa.overreserve import Counted, Detect, OverReserve, Resync
from slacktide.streams.decisions.numa.pod_fingerprint import pod_fingerprint
from slacktide.streams.decisions.numa.reservations import DiscardReserved, Passthrough, SeenPod, Topology, UntilSeen

FIELDS = (("cpu_milli", "batch_cpu_milli", "milli"), ("mem_bytes", "batch_memory_bytes", "bytes"))
_RESOURCES = Annotated[ZoneResources, By(lambda resources, _: into(ZoneResources, resources), GivenResources)]
GivenZone = Annotated[Zone, Form("id allocatable available", id=ZoneId, allocatable=_RESOURCES, available=_RESOURCES)]
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
