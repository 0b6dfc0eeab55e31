"""The operator's ConfigMap, short to write in a test."""

import json
from typing import Any

from slacktide.schemas.policy import Policy, parse

KEYS = {
    "colocation": "colocation-config",
    "threshold": "resource-threshold-config",
    "qos": "resource-qos-config",
    "burst": "cpu-burst-config",
    "budget": "eviction-budget-config",
    "descheduling": "descheduling-config",
    "placement": "placement-config",
    "admission": "admission-config",
    "agent": "agent-config",
}


def config_map(colocation: Any = None, threshold: Any = None, **given: Any) -> dict:
    """The ConfigMap: the objects of ``KEYS`` as JSON, and further keys, as text."""
    given |= {"colocation": colocation, "threshold": threshold}
    data = {name: body for name, body in given.items() if name not in KEYS}
    data |= {key: json.dumps(given[name]) for name, key in KEYS.items() if given.get(name) is not None}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}


def policy_from(**configs: Any) -> Policy:
    """The policy that such a ConfigMap says."""
    return parse(config_map(**configs), "policy.yaml").policy
