"""Decides whether a node's zones can hold a pod, their score, and explains which zones it would get.

Slacktide's own, based on the corrected rules. Zones are the agent's record, minus pods placed since.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from slacktide.schemas.message import Terms
from slacktide.schemas.zones import NodeZones, ZoneResources
from slacktide.streams.decisions.numa.filter import Filtered, Lack, Node, distance, numa_filter
from slacktide.streams.decisions.numa.reservations import reserved_request
from slacktide.streams.decisions.numa.score import Strategy, numa_score
from slacktide.streams.decisions.numa.topology import (
    CPU,
    MEMORY,
    Amounts,
    Container,
    Kubelet,
    Pod,
    Zone,
    charged,
    is_affine,
    is_native,
    places_of,
    steps,
)

SETS_ZONES_MAX = 8
"""Maximum number of zones, since rules try all sets. The kubelet's default maximum is the same."""
STALE, UNREAD, OVER_RESERVED = "zones_stale", "zones_unread", "numa_over_reserved"
ANSWERS_MAX = 5_000
_BATCH_CPU, _BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


@dataclass(frozen=True, slots=True)
class ZonedPod:
    """A pod with zoned requests. Equal pods share a cached answer."""

    key: Hashable
    pod: Pod = field(compare=False)
    reserved: Amounts = field(compare=False)
    """Charged to the zones until the node's record names the pod."""


class Reservation(NamedTuple):
    """A pod placed on a node whose record does not name it yet."""

    name: str
    reserved: Amounts


@dataclass(frozen=True, slots=True)
class NodeZonesView:
    """A node's zones with reservations. Equal views share a cached answer."""

    key: Hashable
    kubelet: Kubelet = field(compare=False)
    recorded: tuple[Zone, ...] = field(compare=False)
    zones: tuple[Zone, ...] = field(compare=False)
    """Minus all reservations. Each counts in every zone, since the kubelet chooses the zone."""
    reservations: tuple[Reservation, ...] = field(compare=False)
    stale: bool = field(compare=False)

    def less(self, reservations: Iterable[Reservation], *, stale: bool) -> NodeZonesView:
        """Return the record's zones minus these reservations."""
        held = tuple(reservations)
        if not held and not stale:
            return self
        zones = []
        for zone in self.recorded:
            left = dict(zone.available)
            for name, amount in (each for one in held for each in one.reserved.items()):
                if name in left:
                    left[name] = max(0, left[name] - amount)
            zones.append(zone._replace(available=left))
        return NodeZonesView(
            key=(self.key, tuple(_items(one.reserved) for one in held)) if held else self.key,
            kubelet=self.kubelet,
            recorded=self.recorded,
            zones=tuple(zones),
            reservations=held,
            stale=stale,
        )


class ZonesRefusal(NamedTuple):
    """Why a node's zones reject the pod."""

    reason: str
    lacks: tuple[Lack, ...] = ()
    free_before: tuple[int, ...] = ()
    """Available in each lack's best zone by the node's record."""
    reservations: tuple[Reservation, ...] = ()
    """The reservations, if the pod fits without them."""


class _Answer(NamedTuple):
    filtered: Filtered
    fits_recorded: bool
    score: int


def zoned(pod: Pod) -> ZonedPod | None:
    """Return the pod with its zoned requests; None if it has none."""
    parts = [*pod.inits, *pod.containers]
    devices = any(not is_native(name) for part in parts for name in part.requests)
    if not pod.guaranteed and not devices:
        return None
    key = (
        pod.qos,
        tuple((part.name, part.sidecar, _items(part.requests)) for part in pod.inits),
        tuple((part.name, _items(part.requests)) for part in pod.containers),
        _items(pod.overhead),
        None if pod.pod_level is None else _items(pod.pod_level),
    )
    return ZonedPod(key, pod, reserved_request(pod))


def view_of_zones(record: NodeZones) -> NodeZonesView | None:
    """Return the zones of a node's record; None if the kubelet's policy is unknown or there are too many zones."""
    if record.policy is None or record.scope is None or len(record.zones) > SETS_ZONES_MAX:
        return None
    kubelet = Kubelet(
        policy=record.policy,
        scope=record.scope,
        max_zones=record.max_zones,
        cpu_static=record.cpu_static,
        memory_static=record.memory_static,
        prefer_closest=record.prefer_closest,
    )
    recorded = tuple(
        Zone(
            zone.id,
            _amounts(zone.available),
            {one.zone: one.distance for one in zone.distances},
            _amounts(zone.allocatable),
        )
        for zone in record.zones
    )
    return NodeZonesView(
        key=(
            kubelet,
            tuple(
                (zone.id, _items(zone.available), tuple(zone.costs.items()), _items(zone.capacity)) for zone in recorded
            ),
        ),
        kubelet=kubelet,
        recorded=recorded,
        zones=recorded,
        reservations=(),
        stale=False,
    )


def zones_refusal(pod: ZonedPod, view: NodeZonesView, strategy: Strategy) -> ZonesRefusal | None:
    """Return why the node's zones reject the pod; None if they accept it or the kubelet does not align pods."""
    if view.kubelet.policy not in {"single-numa-node", "restricted"}:
        return None
    if view.stale:
        return ZonesRefusal(STALE)
    if not view.recorded:
        return ZonesRefusal(UNREAD)
    answer = _answer(pod, view, strategy)
    if answer.filtered.fits:
        return None
    lacks = answer.filtered.failure.lacks if answer.filtered.failure else ()
    recorded = {zone.id: zone.available for zone in view.recorded}
    before = tuple(recorded.get(lack.best_zone or 0, {}).get(lack.resource, 0) for lack in lacks)
    if answer.fits_recorded:
        return ZonesRefusal(OVER_RESERVED, lacks, before, view.reservations)
    kind = "numa_restricted" if view.kubelet.policy == "restricted" else "numa_no_zone"
    return ZonesRefusal(f"{kind}:{'+'.join(lack.resource for lack in lacks)}", lacks, before)


def zones_score(pod: ZonedPod, view: NodeZonesView, strategy: Strategy) -> int | None:
    """Return the score of the node's zones for the pod, 0 to 100; None if zones do not affect it."""
    if not pod.pod.guaranteed:
        return None
    return 0 if view.stale or not view.recorded else _answer(pod, view, strategy).score


@lru_cache(maxsize=ANSWERS_MAX)
def _answer(pod: ZonedPod, view: NodeZonesView, strategy: Strategy) -> _Answer:
    """Cache answers: most nodes, and most pending pods, are equal."""
    filtered = _filter(pod, view.kubelet, view.zones)
    fits = filtered.fits or (bool(view.reservations) and _filter(pod, view.kubelet, view.recorded).fits)
    score = numa_score(pod.pod, view.kubelet, view.zones, strategy, {}, corrected=True).score if filtered.fits else 0
    return _Answer(filtered, fits, score)


def _filter(pod: ZonedPod, kubelet: Kubelet, zones: Sequence[Zone]) -> Filtered:
    """Filter with all resources on the node. The scheduler compares node amounts itself."""
    named = [name for part in (*pod.pod.inits, *pod.pod.containers) for name in part.requests]
    everything = dict.fromkeys([*named, *(pod.pod.pod_level or {}), *pod.pod.overhead], 1)
    return numa_filter(pod.pod, Node(allocatable=everything, kubelet=kubelet, zones=zones), corrected=True)


def _amounts(resources: ZoneResources) -> dict[str, int]:
    native = {
        CPU: resources.cpu_milli,
        MEMORY: resources.mem_bytes,
        _BATCH_CPU: resources.batch_cpu_milli,
        _BATCH_MEMORY: resources.batch_mem_bytes,
    }
    pages = {f"hugepages-{size}": amount for size, amount in resources.hugepages_bytes.items()}
    return {name: amount for name, amount in native.items() if amount is not None} | pages | resources.devices


def _items(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))


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
    answer = _answer(pod, view, strategy).filtered
    asked = {step.container: step.request for step in steps(pod.pod, view.kubelet.scope, corrected=True)}
    requests = tuple(ZonedRequest(one.container, asked[one.container], one.zones) for one in answer.placed)
    zones: Sequence[Zone] = view.zones
    for one in requests:
        alone = Pod(qos=pod.pod.qos, containers=[Container(name="", requests=one.request)])
        reserved = pod.reserved if one.container is None else reserved_request(alone)
        static = {name: view.kubelet.cpu_static if name == CPU else view.kubelet.memory_static for name in reserved}
        held = {name: of for name, of in reserved.items() if not is_affine(name) or static[name] is not False}
        zones = charged(held, zones, places_of(one.zones, zones))
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


def _of(names: Iterable[str], zone: Zone) -> Amounts:
    return {name: zone.available[name] for name in sorted(names) if name in zone.available}
