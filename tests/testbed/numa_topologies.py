"""Topology objects of nodes, and pods on them, as tests of reservations write them."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.streams.decisions.numa.pod_fingerprint import pod_fingerprint
from slacktide.streams.decisions.numa.reservations import Passthrough, SeenPod, Topology
from slacktide.streams.decisions.numa.topology import NamedZone, Qos
from testbed.numa_nodes import pod

POLICY = "topologyManagerPolicy"


def topology(*cpus: int, uids: tuple[str, ...] = (), **attributes: str) -> Topology:
    """Zones with so many millicores each, and 8 bytes of memory."""
    zones = [NamedZone(f"node-{at}", "Node", {"cpu": cpu, "memory": 8}) for at, cpu in enumerate(cpus)]
    return Topology(zones=zones, attributes=list(attributes.items()), uids=uids)


def of_pods(*pods: SeenPod) -> str:
    return pod_fingerprint(one.key for one in pods)


def seen(
    name: str,
    request: Mapping[str, int] | None = None,
    *,
    node: str = "n1",
    phase: str = "Running",
    scheduler: str = "own",
    qos: Qos = "Guaranteed",
    **more: object,
) -> SeenPod:
    asked = pod({"cpu": 6000} if request is None else request, qos=qos, **more)
    return SeenPod("default", name, f"uid-{name}", scheduler, node, phase, asked)


def cpus(cache: Passthrough, node: str = "n1") -> list[int] | None:
    """What is available in each zone; None: no topology."""
    zones = cache.view(node).zones
    return None if zones is None else [zone["cpu"] for zone in zones.values()]
