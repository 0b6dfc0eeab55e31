"""Metrics of the enrolment."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

ENROLMENTS = Counter("slacktide_bridge_enrolments", "Requests of agents for a key, by result.", ["result"])
CERTIFICATE_UNTIL = Gauge(
    "slacktide_bridge_enrolment_certificate_expiry_timestamp_seconds",
    "Unix time at which the served certificate expires.",
)

for _result in ("enrolled", "refused", "failed"):
    ENROLMENTS.labels(_result)
