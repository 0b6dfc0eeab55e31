"""Prometheus metrics of descheduling in the leading bridge."""

from prometheus_client import Counter, Gauge

PASSES = Counter("slacktide_descheduling_passes", "Passes over all nodes, by result.", ["bound"])
CHOSEN = Counter("slacktide_descheduling_pods_chosen", "Pods that passes selected for eviction.", ["dry_run"])
EVICTIONS = Counter(
    "slacktide_descheduling_evictions", "Evictions by load, by result. no_credit: requests for credit.", ["result"]
)
OVER = Gauge("slacktide_descheduling_nodes_over", "Nodes over their high thresholds, by the last pass.")
