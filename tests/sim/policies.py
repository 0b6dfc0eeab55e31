"""What the operator may ask for; the last one suppresses nothing."""

from __future__ import annotations

from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold

POLICIES = [
    policy_of(Colocation(enable=True, metric_aggregate_duration_s=30), ResourceThreshold(enable=on, **rest))
    for on, rest in [
        (True, {"cpu_suppress_policy": "cfsQuota"}),
        (True, {"cpu_suppress_policy": "cfsQuota", "cpu_suppress_threshold_pct": 50}),
        (True, {"cpu_suppress_policy": "cfsQuota", "cpu_suppress_threshold_pct": 90, "cpu_suppress_min_pct": 10}),
        (False, {}),
    ]
]
