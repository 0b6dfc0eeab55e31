"""Explains which zones a node's kubelet would give to a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.numa.charged import charged, places_of
from slacktide.streams.decisions.numa.one_zone import Lack
from slacktide.streams.decisions.numa.placement import NodeZonesView, Reservation, ZonedPod, filtered
from slacktide.streams.decisions.numa.pod import Container, Pod, steps
from slacktide.streams.decisions.numa.policy_admit import distance
from slacktide.streams.decisions.numa.resource import CPU, Amounts, is_affine
from slacktide.streams.decisions.numa.score import Strategy
from slacktide.streams.decisions.numa.topology import Kubelet, Zone
from slacktide.streams.decisions.numa.until_seen import reserved_request


class ZonedRequest(NamedTuple):
    """A request that is aligned separately, and the zones that it gets."""

    container: str | None
    request: Amounts
    zones: tuple[int, ...]
    """Ids, ascending; all of the node's if no manager takes part."""


class ZonesGiven(NamedTuple):
    """The zones that a node's kubelet would give to a pod."""

    requests: tuple[ZonedRequest, ...] = ()
    """Empty if the kubelet aligns no pod."""
    before: Mapping[int, Amounts] = {}
    """Available amounts of the requested resources, by zone id."""
    after: Mapping[int, Amounts] = {}
    unaligned: tuple[Lack, ...] = ()
    """Under best-effort: why the kubelet admits the pod without alignment."""
    moved: tuple[str, ...] = ()
    not_charged: Amounts = {}
    distance: int = 0
    reservations: tuple[Reservation, ...] = ()
    """Reservations that the node's record does not name yet, charged to every zone."""


def zones_given(pod: ZonedPod, view: NodeZonesView, strategy: Strategy) -> ZonesGiven | None:
    """Return the zones with available amounts before and after; None if they are unknown."""
    if view.stale or not view.recorded:
        return None
    answer = filtered(pod, view, strategy)
    asked = {step.container: step.request for step in steps(pod.pod, view.kubelet.scope, corrected=True)}
    requests = tuple(ZonedRequest(one.container, asked[one.container], one.zones) for one in answer.placed)
    zones: Sequence[Zone] = view.zones
    for one in requests:
        zones = charged(_held(pod, one, view.kubelet), zones, places_of(one.zones, zones))
    ids, names = {zone for one in requests for zone in one.zones}, {name for one in requests for name in one.request}
    given = [zone for zone in view.zones if zone.id in ids]
    return ZonesGiven(
        requests=requests,
        before={zone.id: _of(names, zone) for zone in given},
        after={zone.id: _of(names, zone) for zone in zones if zone.id in ids},
        unaligned=answer.failure.lacks if answer.failure else (),
        moved=tuple(answer.moved),
        not_charged=answer.not_charged,
        distance=distance(given),
        reservations=view.reservations,
    )


def zones_terms(given: ZonesGiven) -> Terms:
    """Convert to terms."""
    terms: Terms = {"zone_count": len(given.before), "zone_distance": given.distance}
    for zone, free in given.before.items():
        if CPU in free:
            terms |= {f"zone_{zone}_free_milli": free[CPU], f"zone_{zone}_left_milli": given.after[zone][CPU]}
    return terms | {"reserved_pods": len(given.reservations)}


def _held(pod: ZonedPod, one: ZonedRequest, kubelet: Kubelet) -> Amounts:
    alone = Pod(qos=pod.pod.qos, containers=[Container(name="", requests=one.request)])
    request = pod.reserved if one.container is None else reserved_request(alone)
    static = {name: kubelet.cpu_static if name == CPU else kubelet.memory_static for name in request}
    return {name: of for name, of in request.items() if not is_affine(name) or static[name] is not False}


def _of(names: Iterable[str], zone: Zone) -> Amounts:
    return {name: zone.available[name] for name in sorted(names) if name in zone.available}
