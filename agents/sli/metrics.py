"""Prometheus metrics of what publishes the latency of services."""

from prometheus_client import Counter

PUBLISHED = Counter("slacktide_sli_published", "Latencies of services that Kafka acknowledged.")
SKIPPED = Counter(
    "slacktide_sli_skipped",
    "Series of a query that are not published. labels: no namespace or owner. name: not the name of a service or node. "
    "value: not a number of seconds above 0. time: no valid time. duplicate: another series of the query has the same "
    "service and node. many: above the limit. kafka: not acknowledged.",
    ["why"],
)
FAILED = Counter("slacktide_sli_queries_failed", "Queries that Prometheus did not answer, or refused.")
