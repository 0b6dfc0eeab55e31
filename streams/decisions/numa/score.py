"""Scores the zones of a node for a pod: by their utilization, their balance, or how many the pod needs.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology: score.go, least_allocated.go, most_allocated.go,
balanced_allocation.go and least_numa.go. The order of floating-point operations is the reference's: it affects the last
digit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple, get_args

from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.filter import DISTANCE_UNKNOWN, ZoneSet, covered, distance
from slacktide.streams.decisions.numa.topology import CPU, Amounts, Kubelet, Pod, Step, Zone, charged, places_of, steps


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
        chosen_zones, nearest = chosen
        count = max(count, len(chosen_zones))
        all_nearest = all_nearest and nearest
        ids = sorted(zone.id for zone in chosen_zones)
        # The reference uses ids as positions.
        places = places_of(ids, zones) if corrected or ids[-1] >= len(zones) else ids
        zones = charged(step.request, zones, places)
    unit = SCORE_MAX // kubelet.max_zones
    score = SCORE_MAX - count * unit + (unit // 2 if count and all_nearest else 0)
    return Needed(min(max(score, 0), SCORE_MAX) if corrected else score, count, all_nearest)


def _smallest_set(request: Amounts, zones: Sequence[Zone], *, corrected: bool) -> tuple[ZoneSet, bool] | None:
    """Return the zones, and whether no set of this size has a smaller distance, fitting or not."""
    listed = {name for zone in zones for name in zone.available}
    wanted = {name: amount for name, amount in request.items() if name in listed or not corrected}
    for size in range(1, len(zones) + 1):
        sets = list(combinations(zones, size))
        far = [distance(one) for one in sets]
        unknown = DISTANCE_UNKNOWN * size * size
        nearest = min(far) if corrected else min(unknown, *far)
        fitting = [
            at
            for at, one in enumerate(sets)
            if (corrected or all(name in zone.available for zone in one for name in wanted))
            and covered(wanted, [zone.available for zone in one])
        ]
        # The reference ignores sets whose distance exceeds the firmware maximum.
        fitting = [at for at in fitting if corrected or far[at] < unknown + size * size]
        if fitting:
            best = min(fitting, key=lambda at: far[at])
            return sets[best], far[best] == nearest
    return None


SCORE_MAX = 100
Allocation = Literal["LeastAllocated", "MostAllocated", "BalancedAllocation"]


def request_score(
    request: Amounts,
    zones: Sequence[Zone],
    strategy: Allocation,
    weights: Mapping[str, int],
    *,
    corrected: bool = False,
) -> int:
    """Return the smallest zone score above 0; 0 if there is none.

    ``request`` includes zeros. ``BalancedAllocation`` ignores weights; missing ones and those below 1 count as 1.
    Corrected: CPU in millicores; the reference rounds it up to whole cores.
    """
    per_cpu = 1 if corrected else 1000
    scores = (_zone_score(request, zone.available, strategy, weights, per_cpu) for zone in zones)
    return min((score for score in scores if score), default=0)


def _zone_score(
    request: Amounts, available: Amounts, strategy: Allocation, weights: Mapping[str, int], per_cpu: int
) -> int:
    asked = {name: _whole(name, amount, per_cpu) for name, amount in request.items()}
    capacity = {name: _whole(name, available.get(name, 0), per_cpu) for name in request}
    if strategy == "BalancedAllocation":
        return _balance([asked[name] / capacity[name] if capacity[name] else 1.0 for name in sorted(request)])
    scores = dict.fromkeys(request, 0)
    for name, amount in request.items():
        if available.get(name, 0) > 0 and amount <= available[name]:
            given = capacity[name] - asked[name] if strategy == "LeastAllocated" else asked[name]
            scores[name] = given * SCORE_MAX // capacity[name]
    weight_of = {name: max(weights.get(name, 1), 1) for name in request}
    total = sum(weight_of.values())
    return sum(weight_of[name] * score for name, score in scores.items()) // total if total else 0


def _balance(fractions: Sequence[float]) -> int:
    """Return 100 minus the sample variance of the used fractions; 100 for a single resource."""
    if any(one > 1.0 for one in fractions):
        return 0
    count = len(fractions)
    if count < 2:
        return SCORE_MAX
    mean = sum(fractions) / count
    squares = sum((one - mean) * (one - mean) for one in fractions)
    rest = sum(one - mean for one in fractions)
    return int((1.0 - (squares - rest * rest / count) / (count - 1)) * SCORE_MAX)


def _whole(name: str, amount: int, per_cpu: int) -> int:
    return -(-amount // per_cpu) if name == CPU else amount


Strategy = Literal[Allocation, "LeastNUMANodes"]
STRATEGIES: tuple[Strategy, ...] = (*get_args(Allocation), "LeastNUMANodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score of 0 to 100, with its computation; lower for the reference's LeastNUMANodes."""

    score: int
    because: Because


def numa_score(
    pod: Pod,
    kubelet: Kubelet,
    zones: Sequence[Zone] | None,
    strategy: Strategy,
    weights: Mapping[str, int],
    *,
    corrected: bool = False,
) -> Score:
    """Score a node for a pod; pods that are not Guaranteed always score 100.

    ``zones`` None: the topology is unknown or stale. ``LeastNUMANodes`` scores under every policy, the others only
    under ``single-numa-node``. ``corrected``: see docs/numa-rules.md.
    """
    if not pod.guaranteed:
        return _score("not_guaranteed", SCORE_MAX)
    if zones is None:
        return _score("no_topology", 0)
    wanted = list(steps(pod, kubelet.scope, corrected=corrected))
    if strategy == "LeastNUMANodes":
        needed = least_numa(wanted, zones, kubelet, corrected=corrected)
        return _score("zones", needed.score, max_zone_count=kubelet.max_zones, zone_count=needed.zone_count)
    if kubelet.policy != "single-numa-node":
        return _score("other_policy", 0)
    scores = [request_score(step.request, zones, strategy, weights, corrected=corrected) for step in wanted]
    total = sum(scores)
    return _score("mean", total // len(scores) if scores else 0, total_score=total, request_count=len(scores))


def _score(bound: str, score: int, **terms: int) -> Score:
    return Score(score=score, because=Because(of="score", bound=bound, terms={**terms, "score": score}))
