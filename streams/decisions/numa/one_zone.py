"""Finds one zone that can hold a whole request.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/filter.go, resourcesAvailableInAnyNUMANodes. The reference
iterates a map in random order. Here resources are sorted by name, so the reason is deterministic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.numa.resource import ALWAYS_ON_NODE, Amounts, is_affine, is_host_level
from slacktide.streams.decisions.numa.topology import Zone

Why = Literal["not_on_node", "no_zone", "not_aligned"]


class Lack(NamedTuple):
    """A resource for which a request is rejected."""

    resource: str
    why: Why
    asked: int
    best_zone: int | None = None
    """The zone with the most available, the lowest id of ties; None: no zone lists it."""
    free: int = 0


class Found(NamedTuple):
    """The zone for a request."""

    zone: int = 0
    """The lowest id; 0 if no resource restricts the choice, even without a zone 0."""
    lacks: tuple[Lack, ...] = ()
    """Not empty: no zone fits. By name; the first is the reference's reason."""


def one_zone(
    request: Amounts,
    zones: Sequence[Zone],
    on_node: Collection[str],
    *,
    guaranteed: bool,
    anywhere: Collection[str] = (),
) -> Found:
    """Find a zone for a request; amounts of 0 do not count.

    ``on_node``: resources in the node's allocatable. Unless ``guaranteed``, a zone must only list CPU, memory and
    hugepages, in any amount. ``anywhere``: further resources that may be unzoned, beside devices and storage.
    """
    left: set[int] | None = None
    lacks = list(not_on_node(request, on_node))
    missing = {lack.resource for lack in lacks}
    for name in sorted(request):
        listing = [zone for zone in zones if name in zone.available]
        if not request[name] or name in missing or (not listing and (is_host_level(name) or name in anywhere)):
            continue
        any_amount = is_affine(name) and not guaranteed
        good = {zone.id for zone in listing if any_amount or zone.available[name] >= request[name]}
        narrowed = good if left is None else left & good
        if not narrowed and (not good or left):
            lacks.append(lack_of(name, request[name], zones, "no_zone"))
        left = narrowed
    return Found(min(left or {0}), tuple(sorted(lacks)))


def not_on_node(request: Amounts, on_node: Collection[str]) -> Iterator[Lack]:
    """Yield requested resources that the node does not have."""
    for name, amount in request.items():
        if amount and name not in on_node and name not in ALWAYS_ON_NODE:
            yield Lack(name, "not_on_node", amount)


def lack_of(name: str, asked: int, zones: Sequence[Zone], why: Why) -> Lack:
    """Return the lack with the zone that has the most available."""
    free = {zone.id: zone.available[name] for zone in zones if name in zone.available}
    best = min(free, key=lambda zone: (-free[zone], zone), default=None)
    return Lack(name, why, asked, best, 0 if best is None else free[best])
