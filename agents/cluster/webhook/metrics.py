"""Every metric of the webhook, by Prometheus' naming."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

ADMISSIONS = Counter(
    "slacktide_webhook_admissions",
    "New pods by what became of them: mutated, unchanged, refused; left_out: of a namespace that no profile is for; "
    "failed: stored as they came.",
    ["result"],
)
ADMISSION = Histogram(
    "slacktide_webhook_admission_seconds",
    "From a question about a new pod to its answer.",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2),
)
EVICTIONS = Counter(
    "slacktide_webhook_evictions", "Evictions that agents asked for: allowed, or why they were refused.", ["result"]
)
PROFILES = Gauge("slacktide_webhook_profiles", "Profiles there are; unusable ones are for no pod.", ["state"])
MISSED = Gauge("slacktide_webhook_missed_pods", "Pods that run, or are to, as they came: created past the webhook.")
CERTIFICATE_UNTIL = Gauge(
    "slacktide_webhook_certificate_until_seconds", "Until when the certificate served is good, in Unix time."
)
