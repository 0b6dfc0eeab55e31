"""``slacktide calc batch_resource``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.resources.node_case import NodeCase, key, load_of, too_old
from slacktide.streams.decisions.resources.batch_resource import ZoneResource, batch_resource, batch_resource_zones

HOST_CLASSES = frozenset({"koord-prod", "koord-mid"})
FIELDS = ("batch_cpu_milli", "batch_memory_bytes")


class Input(NodeCase, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy."""


def calculate(given: Input) -> Calculated:
    """Compute the batch resources of a node and its NUMA zones."""
    colocation = given.colocation()
    reset = too_old(given, colocation, FIELDS)
    if reset is not None:
        return reset
    load = load_of(given, HOST_CLASSES)
    batch = batch_resource(load, colocation)
    output: dict[str, object] = {"degraded": False} | dict(zip(FIELDS, (batch.cpu_milli, batch.mem_bytes), strict=True))
    bound = {key(pod.namespace, pod.name): pod.numa_nodes for pod in given.pods or () if pod.numa_nodes}
    zones = batch_resource_zones(load, colocation, [zone.zone() for zone in given.node.numa_zones or ()], bound)
    if zones:
        output["zones"] = {zone.name: _written(zone) for zone in zones}
    return Calculated(output=output, because=[*batch.because, *(one for zone in zones for one in zone.because)])


def _written(zone: ZoneResource) -> dict[str, int]:
    return dict(zip(FIELDS, (zone.cpu_milli, zone.mem_bytes), strict=True))
