"""Prometheus metrics of the webhook."""

from prometheus_client import Counter, Gauge, Histogram

ADMISSIONS = Counter(
    "slacktide_webhook_admissions",
    "New pods, by result: mutated, unchanged, borrowed (batch beyond its quota), refused, over_quota, contradictory "
    "(QoS and priority class). left_out: no profile selects the namespace. failed: an error, stored unchanged.",
    ["result"],
)
DRY_RUNS = Counter("slacktide_webhook_dry_runs", "New pods that a profile in dry run would change or reject.")
ADMISSION = Histogram(
    "slacktide_webhook_admission_seconds",
    "Seconds to answer an admission request.",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2),
)
EVICTIONS = Counter(
    "slacktide_webhook_evictions", "Eviction requests of agents: allowed, or the reason for rejection.", ["result"]
)
PROFILES = Gauge(
    "slacktide_webhook_profiles", "Profiles, by state. Invalid profiles are not applied to any pod.", ["state"]
)
MISSED = Gauge(
    "slacktide_webhook_missed_pods",
    "Pods that were created while the webhook was unreachable, so that it did not change them.",
)
CERTIFICATE_UNTIL = Gauge(
    "slacktide_webhook_certificate_until_seconds", "Unix time at which the served certificate expires."
)
CLIENTS = Counter(
    "slacktide_webhook_clients",
    "Requests to a webhook with --client-ca, by client certificate: accepted, or refused since there is none or its "
    "name is not allowed.",
    ["certificate"],
)
