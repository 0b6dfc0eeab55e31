"""Every metric of the bridge."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from slacktide.schemas.topics import read_by

LEADING = Gauge("slacktide_bridge_leading", "1 while this replica holds the lease.")
EPOCH = Gauge("slacktide_bridge_writer_epoch", "Of what this replica writes to the log; 0: it does not lead.")
NODES = Gauge("slacktide_bridge_nodes", "Nodes that Kubernetes has.")
FROZEN = Gauge("slacktide_bridge_nodes_frozen", "Those of which the log has fallen silent: they are left as they are.")
CAPPED = Gauge(
    "slacktide_bridge_nodes_capped", "Nodes whose figures are above their own capacity: it is written instead."
)
TROUBLE = Gauge("slacktide_bridge_trouble", "1 while something is wrong with it.", ["of"])
WRITES = Counter("slacktide_bridge_writes", "Writes to the API server, by what came of them.", ["kind", "result"])
LISTED = Counter("slacktide_bridge_lists", "Times that all objects were read at once.", ["of"])
REFUSED = Counter("slacktide_bridge_records_refused", "Records that could not be used.", ["topic"])

for _kind in ("status", "metric"):
    for _result in ("done", "refused", "away"):
        WRITES.labels(_kind, _result)
for _topic in read_by("bridge"):
    REFUSED.labels(_topic.name)
