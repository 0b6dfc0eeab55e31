"""Charges a request to zones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slacktide.streams.decisions.numa.resource import Amounts
from slacktide.streams.decisions.numa.topology import Zone


def charged(request: Amounts, zones: Sequence[Zone], places: Iterable[int]) -> list[Zone]:
    """Charge a request to zones by position, in order, as much to each as it has available.

    Skip zones that do not list a resource.
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
    """Return the positions of zone ids, sorted by id; ignore unknown ids."""
    place = {zone.id: at for at, zone in enumerate(zones)}
    return [place[one] for one in sorted(ids) if one in place]
