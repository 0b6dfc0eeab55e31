"""Shows a policy by groups of nodes: the cluster strategy, and the changes of each node strategy. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slacktide.deploy.cli.policy.words import value_text
from slacktide.schemas.policy import NodeStrategy, Policy
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.fields import leaves
from slacktide.schemas.policy.paths import key_of, path_of
from slacktide.schemas.policy.selector import Selector


def policy_groups(policy: Policy) -> list[dict[str, Any]]:
    """Return each strategy for the cluster, then per node selector: the first match applies to a node."""
    return list(_groups(policy))


def _groups(policy: Policy) -> Iterator[dict[str, Any]]:
    for config in CONFIGS:
        name = config.strategy
        chosen = {field.partition(".")[2] for field in policy.said if field.startswith(f"{name}.")}
        yield {
            "config": key_of(name),
            "name": "",
            "nodes": "",
            "fields": [
                {"field": path_of(name, field), "value": value_text(value), "set": field in chosen}
                for field, value in leaves(getattr(policy, name))
            ],
        }
        own: list[NodeStrategy[Any]] = getattr(policy, f"node_{name}", [])
        for one in own:
            values = dict(leaves(one.strategy))
            yield {
                "config": key_of(name),
                "name": one.name,
                "nodes": selector_text(one.selector),
                "fields": [
                    {"field": path_of(name, field), "value": value_text(values.get(field)), "set": True}
                    for field in one.said
                ],
            }


def selector_text(selector: Selector) -> str:
    """Format a selector in the syntax of ``kubectl -l``."""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for one in selector.match_expressions:
        words = {"In": "in", "NotIn": "notin", "Exists": "", "DoesNotExist": "!"}[one.operator]
        parts.append(f"{one.key} {words} ({', '.join(one.values)})" if one.values else f"{words}{one.key}")
    return ",".join(parts) or "all"
