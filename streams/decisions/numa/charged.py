"""Zones after a request was taken from some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slacktide.streams.decisions.numa.resource import Amounts
from slacktide.streams.decisions.numa.topology import Zone


def charged(request: Amounts, zones: Sequence[Zone], places: Iterable[int]) -> list[Zone]:
    """Take a request from zones given by their place in the list, in that order, as much from each as it has.

    A zone that does not list a resource is passed over.
    """
    after, left = list(zones), dict(request)
    for place in places:
        free = dict(after[place].available)
        for name in free.keys() & left.keys():
            taken = min(left[name], free[name])
            free[name] -= taken
            left[name] -= taken
        after[place] = after[place]._replace(available=free)
    return after


def places_of(ids: Iterable[int], zones: Sequence[Zone]) -> list[int]:
    """Where the zones with these ids are in the list, by id; ids that no zone has are left out."""
    place = {zone.id: at for at, zone in enumerate(zones)}
    return [place[one] for one in sorted(ids) if one in place]
