"""``slacktide calc batch_resource``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.node_case import GivenMetric, GivenUse, NodeCase, key, keyed, pod_metrics
from slacktide.streams.decisions.batch_resource import batch_resource
from slacktide.streams.decisions.batch_resource_zones import batch_resource_zones
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.degraded import degraded
from slacktide.streams.decisions.node_load import NodeLoad

HOST_CLASSES = frozenset({"koord-prod", "koord-mid"})


class Input(NodeCase, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy."""


def calculate(given: Input) -> Calculated:
    """What batch pods may ask for on a node, and in its NUMA zones."""
    colocation = given.colocation()
    metric = given.node_metric or GivenMetric()
    too_old = degraded(
        now_s=given.now_seconds, updated_s=metric.update_time_seconds, degrade_time_min=colocation.degrade_time_min
    )
    if too_old is not None:
        fields = ("batch_cpu_milli", "batch_memory_bytes")
        because = [Because(of=field, bound="degraded", terms=too_old) for field in fields]
        return Calculated(output={"degraded": True} | dict.fromkeys(fields), because=because)
    node = given.node
    load = NodeLoad(
        facts=node.facts(),
        pods=keyed(given.pods or ()),
        metrics=pod_metrics(metric),
        system=(metric.system_usage or GivenUse()).use(),
        host_use=metric.host_use(HOST_CLASSES),
    )
    batch = batch_resource(load, colocation)
    output: dict[str, object] = {
        "degraded": False,
        "batch_cpu_milli": batch.cpu_milli,
        "batch_memory_bytes": batch.mem_bytes,
    }
    bound = {key(pod.namespace, pod.name): pod.numa_nodes for pod in given.pods or () if pod.numa_nodes}
    zones = batch_resource_zones(load, colocation, [zone.zone() for zone in node.numa_zones or ()], bound)
    if zones:
        output["zones"] = {
            zone.name: {"batch_cpu_milli": zone.cpu_milli, "batch_memory_bytes": zone.mem_bytes} for zone in zones
        }
    return Calculated(output=output, because=[*batch.because, *(one for zone in zones for one in zone.because)])
