"""Metrics of the job queue in the bridge."""

from typing import get_args

from prometheus_client import Counter, Gauge

from slacktide.schemas.queue import Result

WORKS = Gauge("slacktide_bridge_queue_jobs", "Jobs, and objects of other kinds, with a queue.")
SHADOW = Gauge(
    "slacktide_bridge_queue_shadow",
    "1 while Kueue admits workloads on this cluster, so that this queue writes nothing to it.",
)
WRITES = Counter(
    "slacktide_bridge_queue_writes",
    "Writes to queued Jobs, to quotas of Kueue and to the status of queues, by operation and result.",
    ["what", "result"],
)
ANSWERS = Counter("slacktide_bridge_queue_answers", "Answers to admissions that Kafka acknowledged.", ["result"])
RECORDS = Counter("slacktide_bridge_queue_records", "Specs and workloads that Kafka acknowledged.", ["topic"])

for _what in ("start", "stop", "suspend", "refuse", "reset", "restore", "deactivate", "quota", "status"):
    for _result in ("done", "conflict", "refused", "away"):
        WRITES.labels(_what, _result)
for _answer in get_args(Result):
    ANSWERS.labels(_answer)
