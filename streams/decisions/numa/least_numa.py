"""Finds the smallest set of zones for each request of a pod, and scores the number of zones.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/least_numa.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from slacktide.streams.decisions.numa.charged import charged, places_of
from slacktide.streams.decisions.numa.pod import Step
from slacktide.streams.decisions.numa.policy_admit import DISTANCE_UNKNOWN, ZoneSet, covered, distance
from slacktide.streams.decisions.numa.resource import Amounts
from slacktide.streams.decisions.numa.topology import Kubelet, Zone

SCORE_MAX = 100


class Chosen(NamedTuple):
    """The zones for one request."""

    zones: ZoneSet
    nearest: bool
    """Whether no set of this size has a smaller distance, fitting or not."""


class Needed(NamedTuple):
    """The number of zones that a pod needs."""

    score: int
    zone_count: int = 0
    """The maximum over its requests; 0: no request needs a zone, or no set of zones fits."""
    all_nearest: bool = True


def least_numa(steps: Iterable[Step], zones: Sequence[Zone], kubelet: Kubelet, *, corrected: bool = False) -> Needed:
    """Score a Guaranteed pod: 100 minus a step for each zone that it needs; at most 16 zones.

    All sets of zones are tried, the smallest first. ``corrected``: see docs/numa-rules.md.
    """
    count, all_nearest = 0, True
    for step in steps:
        if not any(name in zone.available for zone in zones for name in step.request):
            continue
        chosen = _smallest_set(step.request, zones, corrected=corrected)
        if chosen is None:
            return Needed(score=0)
        count = max(count, len(chosen.zones))
        all_nearest = all_nearest and chosen.nearest
        zones = charged(step.request, zones, _places(chosen.zones, zones, corrected=corrected))
    unit = SCORE_MAX // kubelet.max_zones
    score = SCORE_MAX - count * unit + (unit // 2 if count and all_nearest else 0)
    return Needed(min(max(score, 0), SCORE_MAX) if corrected else score, count, all_nearest)


def _smallest_set(request: Amounts, zones: Sequence[Zone], *, corrected: bool) -> Chosen | None:
    listed = {name for zone in zones for name in zone.available}
    wanted = {name: amount for name, amount in request.items() if name in listed or not corrected}
    for size in range(1, len(zones) + 1):
        sets = list(combinations(zones, size))
        far = [distance(one) for one in sets]
        unknown = DISTANCE_UNKNOWN * size * size
        nearest = min(far) if corrected else min(unknown, *far)
        fitting = [at for at, one in enumerate(sets) if _fits(wanted, one, corrected=corrected)]
        # The reference ignores sets whose distance exceeds the firmware maximum.
        fitting = [at for at in fitting if corrected or far[at] < unknown + size * size]
        if fitting:
            best = min(fitting, key=lambda at: far[at])
            return Chosen(sets[best], far[best] == nearest)
    return None


def _fits(request: Amounts, zones: ZoneSet, *, corrected: bool) -> bool:
    if not corrected and not all(name in zone.available for zone in zones for name in request):
        return False
    return covered(request, [zone.available for zone in zones])


def _places(chosen: ZoneSet, zones: Sequence[Zone], *, corrected: bool) -> list[int]:
    """Return the positions of the chosen zones. The reference uses ids as positions."""
    ids = [zone.id for zone in chosen]
    return places_of(ids, zones) if corrected or max(ids) >= len(zones) else sorted(ids)
