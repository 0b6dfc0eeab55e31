"""Parses a node's zones and the kubelet's topology settings from an exporter's attributes.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/nodeconfig/topologymanager.go and pluginhelpers.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from slacktide.streams.decisions.numa.resource import Amounts

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]
POLICIES: Final[Mapping[str, Policy]] = {
    "none": "none",
    "best-effort": "best-effort",
    "restricted": "restricted",
    "single-numa-node": "single-numa-node",
}
SCOPES: Final[Mapping[str, Scope]] = {"container": "container", "pod": "pod"}
DEPRECATED: Final[Mapping[str, tuple[Policy, Scope]]] = {
    f"{name}{level}": (policy, scope)
    for name, policy in (
        ("SingleNUMANode", POLICIES["single-numa-node"]),
        ("BestEffort", POLICIES["best-effort"]),
        ("Restricted", POLICIES["restricted"]),
    )
    for level, scope in (("PodLevel", SCOPES["pod"]), ("ContainerLevel", SCOPES["container"]))
}
MAX_ZONES_LIMIT = 1024
ID_MAX = 63
"""The reference ignores zones with a higher id."""
ID_MAX_CORRECTED = 1023
INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"\+?([0-9]+)")
_INT64_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The kubelet settings that the rules read."""

    policy: Policy = "none"
    scope: Scope = "container"
    max_zones: int = 8
    cpu_static: bool | None = None
    memory_static: bool | None = None
    prefer_closest: bool = False


class Zone(NamedTuple):
    """A NUMA zone."""

    id: int
    available: Amounts
    costs: Mapping[int, int] = {}
    """Distance by zone id, including itself."""
    allocatable: Amounts | None = None
    """None: unknown; available amounts count instead."""

    @property
    def capacity(self) -> Amounts:
        """Return the allocatable amounts, else the available ones."""
        return self.available if self.allocatable is None else self.allocatable


class NamedZone(NamedTuple):
    """A zone of a NodeResourceTopology object."""

    name: str
    type: str
    available: Amounts
    costs: Sequence[tuple[str, int]] = ()
    allocatable: Amounts | None = None


def kubelet_of(deprecated: Sequence[str], attributes: Iterable[tuple[str, str]]) -> Kubelet:
    """Parse the kubelet's settings from ``topologyPolicies`` (the first counts) and attributes (the last counts)."""
    policy, scope = DEPRECATED.get(deprecated[0] if deprecated else "", (Kubelet().policy, Kubelet().scope))
    kubelet = Kubelet(policy=policy, scope=scope)
    for name, value in attributes:
        if name == "topologyManagerPolicy":
            kubelet = replace(kubelet, policy=POLICIES.get(value, kubelet.policy))
        elif name == "topologyManagerScope":
            kubelet = replace(kubelet, scope=SCOPES.get(value, kubelet.scope))
        elif name == "topologyManagerMaxNUMANodes":
            kubelet = replace(kubelet, max_zones=_max_zones(value, kubelet.max_zones))
    return kubelet


def zones_of(named: Iterable[NamedZone], id_max: int = ID_MAX) -> list[Zone]:
    """Return zones of type ``Node`` with an id in the name, in the given order."""
    ids = ((zone_id(zone.name), zone) for zone in named if zone.type == "Node")
    return [
        Zone(found, zone.available, _costs(zone.costs), zone.allocatable)
        for found, zone in ids
        if found is not None and found <= id_max
    ]


def zone_id(name: str) -> int | None:
    """Parse the id of ``node-<id>``; return None for other names."""
    head, dash, number = name.partition("-")
    return _integer(number) if (head, dash) == ("node", "-") else None


def _costs(costs: Iterable[tuple[str, int]]) -> dict[int, int]:
    ids = ((zone_id(name), value) for name, value in costs)
    return {found: value for found, value in ids if found is not None}


def _max_zones(text: str, before: int) -> int:
    number = _integer(text)
    return before if number is None or number <= 1 else min(number, MAX_ZONES_LIMIT)


def _integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    # Check the length first: long texts are not converted.
    if found is None or len(found[1].lstrip("0")) > _INT64_DIGITS:
        return None
    number = int(found[1].lstrip("0") or "0")
    return number if number <= INT64_MAX else None
