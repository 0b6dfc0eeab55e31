"""Every metric of the scheduler's part, by Prometheus' naming."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from slacktide.schemas.topics import read_by

ANSWERS = Counter(
    "slacktide_scheduler_answers", "Questions of a kube-scheduler, by what came of them.", ["verb", "result"]
)
ANSWER = Histogram(
    "slacktide_scheduler_answer_seconds",
    "From a question to its answer.",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1),
)
REFUSALS = Counter(
    "slacktide_scheduler_node_refusals", "Nodes that did not take a pod that asked, by reason.", ["reason"]
)
NODES = Gauge("slacktide_scheduler_nodes", "Nodes that the log speaks of, or that hold pods.")
SILENT = Gauge("slacktide_scheduler_nodes_silent", "Those of them that take no new best-effort pod: stale, or frozen.")
ASSUMED = Gauge("slacktide_scheduler_pods_assumed", "Pods that count where they were sent and were not seen there yet.")
WITHOUT_BENEFIT = Gauge(
    "slacktide_scheduler_pods_without_benefit",
    "Pods that ask for batch or mid resources, and for a scheduler that knows no load.",
)
UNASKED = Counter(
    "slacktide_scheduler_pods_unasked",
    "Pods of ours that were bound although no extender had named a node, counted by each replica that saw it.",
)
WAITING = Gauge("slacktide_scheduler_pods_waiting", "Pods that all nodes refused when this replica was asked last.")
WOKEN = Counter(
    "slacktide_scheduler_pods_woken",
    "Waiting pods that this replica woke, for a node that refused them takes them now.",
)
UNTOLD = Counter("slacktide_scheduler_placements_untold", "Placements that never came into the log: too many waited.")
REFUSED = Counter("slacktide_scheduler_records_refused", "Records that could not be used.", ["topic"])
TROUBLE = Gauge("slacktide_scheduler_trouble", "1 while something is wrong with it.", ["of"])

for _verb in ("filter", "prioritize"):
    for _result in ("answered", "failed"):
        ANSWERS.labels(_verb, _result)
for _topic in read_by("scheduler"):
    REFUSED.labels(_topic.name)
