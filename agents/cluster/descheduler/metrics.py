"""Every metric of descheduling; the bridge that leads serves them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PASSES = Counter(
    "slacktide_descheduling_passes", "Looks at all nodes, by what held them back or came of them.", ["bound"]
)
CHOSEN = Counter("slacktide_descheduling_pods_chosen", "Pods that passes chose to leave their nodes.", ["dry_run"])
EVICTIONS = Counter(
    "slacktide_descheduling_evictions",
    "Evictions by load, by what came of them; no_credit: how often credit was asked for.",
    ["result"],
)
OVER = Gauge("slacktide_descheduling_nodes_over", "Nodes over their high thresholds, by the last pass.")
