"""Nodes with NUMA zones that are only said: a kubelet that gives each pod its zone, and an agent that publishes it.

The kubelet reports nothing to the API server: a kube-scheduler would try waiting pods again when a pod began to run.
"""

import asyncio
import time

from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out

from .scheduler_rig import SchedulerRig

ZONE_CPUS = 8
PUBLISH_S = 1.0
"""What an agent takes to see what its kubelet has done."""
GIB = 2**30


class VirtualZones:
    """Two zones of 8 CPUs on each of these nodes, under single-numa-node; each pod of the rig asks for ``pod_cpus``."""

    def __init__(self, rig: SchedulerRig, nodes: list[str], pod_cpus: int) -> None:
        self.admitting = False
        """Whether the kubelet sees pods: until then its node's zones stay reserved for them."""
        self.shown_s: dict[str, float] = {}
        """When a record named the pod, by uid."""
        self.refused: list[str] = []
        """Pods, by uid, for which the kubelet had no zone: TopologyAffinityError."""
        self._rig = rig
        self._pod_cpus = pod_cpus
        self._given: dict[str, dict[str, int]] = {node: {} for node in nodes}
        """By node and uid the zone."""
        self._seq = 0

    async def run(self) -> None:
        sender = Sender(Cluster(self._rig.bootstrap), client_id="test-zones", acks="all")
        try:
            await sender.connect([ZONES.name])
            while True:
                if self.admitting:
                    await asyncio.to_thread(self._admit)
                self._seq += 1
                await sender.send([self._record(node) for node in self._given])
                for given in self._given.values():
                    for uid in given:
                        self.shown_s.setdefault(uid, time.monotonic())
                await asyncio.sleep(PUBLISH_S)
        finally:
            await sender.close()

    def _admit(self) -> None:
        """Each pod that is new on a node gets the lowest zone that can hold it."""
        for pod in self._rig.listed():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
            if node not in self._given or uid in self._given[node] or uid in self.refused:
                continue
            free = [zone for zone in (0, 1) if self._free_cpus(node, zone) >= self._pod_cpus]
            if free:
                self._given[node][uid] = free[0]
            else:
                self.refused.append(uid)

    def _free_cpus(self, node: str, zone: int) -> int:
        return ZONE_CPUS - self._pod_cpus * sum(given == zone for given in self._given[node].values())

    def _record(self, node: str) -> Out:
        zones = [
            Zone(
                id=zone,
                allocatable=ZoneResources(cpu_milli=ZONE_CPUS * 1_000, mem_bytes=8 * GIB),
                available=ZoneResources(cpu_milli=self._free_cpus(node, zone) * 1_000, mem_bytes=8 * GIB),
                distances=[ZoneDistance(zone=other, distance=10 if other == zone else 21) for other in (0, 1)],
            )
            for zone in (0, 1)
        ]
        record = NodeZones(
            node=node,
            boot_id="1-a",
            seq=self._seq,
            observed_ms=1,
            zones=zones,
            policy="single-numa-node",
            scope="container",
            cpu_static=True,
            memory_static=False,
            pods=[BoundPod(uid=uid, zones=[zone]) for uid, zone in sorted(self._given[node].items())],
        )
        return Out(topic=ZONES.name, key=node.encode(), value=encode(record))
