"""Prometheus metrics of the queue's decider."""

from prometheus_client import Counter, Gauge, Histogram

DECIDES = Gauge("slacktide_queue_decides", "1 while this process decides.")
EPOCH = Gauge("slacktide_queue_epoch", "Epoch of the term in which it decides, or last did.")
PENDING = Gauge("slacktide_queue_pending_workloads", "Workloads that wait for quota.", ["cluster_queue"])
ADMITTED = Gauge("slacktide_queue_admitted_workloads", "Workloads that hold quota.", ["cluster_queue"])
TURNS = Counter("slacktide_queue_turns", "Decisions written.")
ADMISSIONS = Counter("slacktide_queue_admissions", "Workloads admitted.")
EVICTIONS = Counter("slacktide_queue_evictions", "Workloads that were to stop for another one.")
TURN_SECONDS = Histogram(
    "slacktide_queue_turn_seconds",
    "Seconds to compute one decision, without publishing it.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
DEAD_LETTERS = Counter(
    "slacktide_queue_dead_letters", "Records that could not be processed and were published as dead letters."
)
