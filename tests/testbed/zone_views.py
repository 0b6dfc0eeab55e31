"""Nodes' zones and pods as who places pods finds them, from records of zones."""

from collections.abc import Sequence
from typing import Any

from slacktide.schemas.zones import NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.numa.placement import NodeZonesView, Reservation, ZonedPod, view_of_zones, zoned
from testbed.numa_nodes import GPU, pod


def zone(
    number: int, cpu: int | None, left: int | None = None, *, mem: int | None = 64, gpu: int | None = None
) -> Zone:
    """``left``: millicores that no pod holds; None: all. Memory is in bytes, and all of it is left."""
    devices = {} if gpu is None else {GPU: gpu}
    return Zone(
        id=number,
        allocatable=ZoneResources(cpu_milli=cpu, mem_bytes=mem, devices=devices),
        available=ZoneResources(cpu_milli=cpu if left is None else left, mem_bytes=mem, devices=devices),
        distances=[ZoneDistance(zone=number, distance=10), ZoneDistance(zone=number + 1, distance=21)],
    )


def record(*zones: Zone, **said: Any) -> NodeZones:
    known = {"policy": "single-numa-node", "scope": "container", "cpu_static": True, "memory_static": False}
    known |= {"node": "a", "boot_id": "1-a", "seq": 1, "observed_ms": 1, "zones": list(zones)}
    return NodeZones(**{**known, **said})  # type: ignore[arg-type]


def view(*zones: Zone, reserved: Sequence[int] = (), stale: bool = False, **said: Any) -> NodeZonesView:
    """``reserved``: millicores of each pod that was placed since; the first is called p0."""
    found = view_of_zones(record(*zones, **said))
    assert found is not None
    held = [Reservation(f"p{number}", {"cpu": milli}) for number, milli in enumerate(reserved)]
    return found.less(held, stale=stale)


def asks(cpu: int, **more: int) -> ZonedPod:
    found = zoned(pod({"cpu": cpu, **more}))
    assert found is not None
    return found
