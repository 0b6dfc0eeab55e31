"""The operator's ConfigMap, short to write in a test."""

from __future__ import annotations

import json
from typing import Any

from slacktide.schemas.policy import Policy, parse

KEYS = {
    "colocation": "colocation-config",
    "threshold": "resource-threshold-config",
    "qos": "resource-qos-config",
    "burst": "cpu-burst-config",
}


def config_map(colocation: Any = None, threshold: Any = None, qos: Any = None, burst: Any = None, **data: str) -> dict:
    """The ConfigMap with these objects as JSON; ``data``: further keys, as text."""
    for name, body in (("colocation", colocation), ("threshold", threshold), ("qos", qos), ("burst", burst)):
        if body is not None:
            data[KEYS[name]] = json.dumps(body)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}


def policy_from(**configs: Any) -> Policy:
    """The policy that such a ConfigMap says."""
    return parse(config_map(**configs), "policy.yaml").policy
