"""Prometheus metrics of the scheduler extender."""

from prometheus_client import Counter, Gauge, Histogram

from slacktide.schemas.topics import read_by

ANSWERS = Counter("slacktide_scheduler_answers", "Requests of a kube-scheduler, by result.", ["verb", "result"])
ANSWER = Histogram(
    "slacktide_scheduler_answer_seconds",
    "Seconds to answer a request.",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1),
)
REFUSALS = Counter("slacktide_scheduler_node_refusals", "Nodes filtered out, by reason.", ["reason"])
NODES = Gauge("slacktide_scheduler_nodes", "Nodes with figures or pods.")
SILENT = Gauge(
    "slacktide_scheduler_nodes_silent",
    "Nodes that accept no new best-effort pod, because their figures are stale or frozen.",
)
ASSUMED = Gauge("slacktide_scheduler_pods_assumed", "Pods assumed on a node, but not yet in its figures.")
WITHOUT_BENEFIT = Gauge(
    "slacktide_scheduler_pods_without_benefit",
    "Pods that request batch or mid resources and name a scheduler without load scoring.",
)
UNASKED = Counter(
    "slacktide_scheduler_pods_unasked",
    "Pods bound without a request to the extender. Each replica counts what it sees.",
)
WAITING = Gauge("slacktide_scheduler_pods_waiting", "Pods that no node accepted at this replica's last request.")
WOKEN = Counter(
    "slacktide_scheduler_pods_woken",
    "Waiting pods that this replica made the scheduler retry, because a node now accepts them.",
)
GANGS = Gauge("slacktide_scheduler_gangs", "Gangs with a plan, or that wait, by reason.", ["state"])
RELEASED = Counter("slacktide_scheduler_pods_released", "Pods of gangs whose scheduling gate this replica removed.")
DROPPED_PLACEMENTS = Counter(
    "slacktide_scheduler_placements_untold", "Placements dropped because too many waited for Kafka."
)
REFUSED = Counter("slacktide_scheduler_records_refused", "Records that could not be processed.", ["topic"])
TROUBLE = Gauge("slacktide_scheduler_trouble", "1 while the scheduler has an error.", ["of"])

for _verb in ("filter", "prioritize"):
    for _result in ("answered", "failed"):
        ANSWERS.labels(_verb, _result)
for _topic in read_by("scheduler"):
    REFUSED.labels(_topic.name)
