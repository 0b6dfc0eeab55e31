"""Prometheus metrics of the bridge."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge

from slacktide.agents.cluster.descheduler.metrics import OVER
from slacktide.schemas.topics import read_by

LEADING = Gauge("slacktide_bridge_leading", "1 while this replica holds the lease.")
EPOCH = Gauge("slacktide_bridge_writer_epoch", "Epoch of this replica's records. 0: it is not the leader.")
NODES = Gauge("slacktide_bridge_nodes", "Nodes that the bridge writes to: all, or those of --node-selector.")
FROZEN = Gauge("slacktide_bridge_nodes_frozen", "Nodes without fresh figures, which the bridge leaves unchanged.")
CAPPED = Gauge(
    "slacktide_bridge_nodes_capped",
    "Nodes whose figures exceed their capacity. The bridge writes the capacity instead.",
)
OFFERED_CPU = Gauge(
    "slacktide_bridge_sold_cpu_milli",
    "CPU of batch, mid and free resources in the Node's status, in thousandths of a CPU.",
    ["node", "tier"],
)
OFFERED_MEMORY = Gauge(
    "slacktide_bridge_sold_memory_bytes",
    "Memory of batch, mid and free resources in the Node's status.",
    ["node", "tier"],
)
TROUBLE = Gauge("slacktide_bridge_trouble", "1 while the bridge has an error.", ["of"])
POLICY_REFUSED = Gauge("slacktide_bridge_policy_refused", "1 while the ConfigMap with the policy is invalid.")
WRITES = Counter("slacktide_bridge_writes", "Writes to the API server, by result.", ["kind", "result"])
LISTED = Counter("slacktide_bridge_lists", "Full lists of all objects.", ["of"])
REFUSED = Counter("slacktide_bridge_records_refused", "Records that could not be processed.", ["topic"])

for _kind in ("status", "metric", "topology"):
    for _result in ("done", "refused", "away"):
        WRITES.labels(_kind, _result)
for _topic in read_by("bridge"):
    REFUSED.labels(_topic.name)

_OFFERED = {
    "batch_cpu_milli": (OFFERED_CPU, "batch"),
    "mid_cpu_milli": (OFFERED_CPU, "mid"),
    "batch_mem_bytes": (OFFERED_MEMORY, "batch"),
    "mid_mem_bytes": (OFFERED_MEMORY, "mid"),
    "free_cpu_milli": (OFFERED_CPU, "free"),
    "free_mem_bytes": (OFFERED_MEMORY, "free"),
}
"""Gauge and tier by field of the Node's allocatable."""


def offers(node: str, figures: Mapping[str, int | None]) -> None:
    """Set the allocatable in a Node's status; None and unreadable values count as 0."""
    for field, (gauge, tier) in _OFFERED.items():
        gauge.labels(node, tier).set(max(0, figures[field] or 0))


def gone(node: str) -> None:
    """Remove a deleted Node."""
    for gauge, tier in _OFFERED.values():
        if (node, tier) in gauge._metrics:  # noqa: SLF001 - removing what is not there warns
            gauge.remove(node, tier)


def leads(epoch: int) -> None:
    """This replica leads, with this epoch."""
    LEADING.set(1)
    EPOCH.set(epoch)


def leads_no_more() -> None:
    """This replica stopped leading; its view of the cluster is no longer served."""
    for gauge in (LEADING, EPOCH, NODES, FROZEN, CAPPED, POLICY_REFUSED, OVER):
        gauge.set(0)
    for labelled in (TROUBLE, OFFERED_CPU, OFFERED_MEMORY):
        labelled.clear()
