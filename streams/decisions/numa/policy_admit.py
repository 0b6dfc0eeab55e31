"""Predicts whether the kubelet's topology manager admits a request, and to which zones.

Reading: kubernetes v1.35.4, pkg/kubelet/cm/topologymanager (policy.go, bitmask). Hints of cpumanager, memorymanager
and devicemanager are computed from amounts. Not included: CPUs reused from init containers, zones that the memory
manager has grouped already, full-pcpus-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from slacktide.streams.decisions.numa.topology import (
    BATCH,
    CPU,
    Amounts,
    Kubelet,
    Zone,
    is_memory,
    is_native,
    whole_cpus,
)

DISTANCE_UNKNOWN = 255
ZoneSet = tuple[Zone, ...]


class Admission(NamedTuple):
    """The topology manager's result."""

    admit: bool
    preferred: bool
    zones: tuple[int, ...]
    """Ids, ascending; empty if not preferred."""
    groups: Sequence[Amounts] = ()
    """Amounts by the manager that provides them."""


def policy_admit(
    request: Amounts, zones: Sequence[Zone], kubelet: Kubelet, *, guaranteed: bool, corrected: bool = False
) -> Admission:
    """Predict the answer for one container's request, or for the pod's in pod scope; at most 16 zones.

    An unknown manager policy counts as static. Corrected: include batch resources that zones list, and reject memory
    that no set of zones can hold here, not later at allocation.
    """
    everywhere = tuple(sorted(zone.id for zone in zones))
    groups = _groups(request, zones, kubelet, guaranteed=guaranteed, corrected=corrected)
    if kubelet.policy == "none" or not groups:
        return Admission(admit=True, preferred=True, zones=everywhere, groups=groups)
    alone = kubelet.policy == "single-numa-node"
    wishes = [{_ids(wish) for wish in _wishes(group, zones) if len(wish) == 1 or not alone} for group in groups]
    common = set.intersection(*wishes)
    if not common:
        return Admission(admit=kubelet.policy == "best-effort", preferred=False, zones=(), groups=groups)
    by_id = {zone.id: zone for zone in zones}
    closest = kubelet.prefer_closest and not alone
    # Highest id first: the order of the sum of 2 ** id.
    best = min(common, key=lambda ids: (closest and distance(by_id[one] for one in ids), ids[::-1]))
    return Admission(admit=True, preferred=True, zones=best, groups=groups)


def covered(request: Amounts, zones: Iterable[Mapping[str, int]]) -> bool:
    """Return whether the sum of these zones covers the request."""
    amounts = list(zones)
    return all(sum(of.get(name, 0) for of in amounts) >= amount for name, amount in request.items())


def distance(zones: Iterable[Zone]) -> int:
    """Return the sum of distances over all ordered pairs, including each zone with itself."""
    chosen = list(zones)
    return sum(one.costs.get(other.id, DISTANCE_UNKNOWN) for one in chosen for other in chosen)


def _groups(
    request: Amounts, zones: Sequence[Zone], kubelet: Kubelet, *, guaranteed: bool, corrected: bool
) -> list[Amounts]:
    """Return the amounts by manager. Fractional cores use the shared pool and are excluded."""
    groups: list[Amounts] = []
    if guaranteed and kubelet.cpu_static is not False and CPU in request and whole_cpus(request[CPU]):
        groups.append({CPU: request[CPU]})
    memory = {name: amount for name, amount in request.items() if is_memory(name) and amount}
    # The memory manager gives no hint if all zones together have too little.
    hinted = corrected or covered(memory, [zone.available for zone in zones])
    if guaranteed and kubelet.memory_static is not False and memory and hinted:
        groups.append(memory)
    listed = {name for zone in zones for name in zone.capacity}
    devices = (name for name in sorted(request) if not is_native(name) or (corrected and name in BATCH))
    groups += [{name: request[name]} for name in devices if request[name] and name in listed]
    return groups


def _wishes(group: Amounts, zones: Sequence[Zone]) -> list[ZoneSet]:
    """Return the sets that fit now, of the minimum size on an empty node."""
    for size in range(1, len(zones) + 1):
        able = [one for one in combinations(zones, size) if covered(group, [zone.capacity for zone in one])]
        if able:
            return [one for one in able if covered(group, [zone.available for zone in one])]
    return []


def _ids(zones: ZoneSet) -> tuple[int, ...]:
    return tuple(sorted(zone.id for zone in zones))
