"""What kubectl prints of a ConfigMap with the policy that is invalid, or has fields without effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import parse

WARNINGS_MAX = 10
"""The API server drops warnings beyond 4,096 characters."""


def policy_warnings(document: Mapping[str, Any] | None) -> list[str]:
    """Return a line for each error; of a valid ConfigMap, for each field without effect."""
    try:
        return list(parse({**(document or {}), "kind": "ConfigMap"}, "policy").notes[:WARNINGS_MAX])
    except ConfigError as exc:
        refused = [f"policy refused: {one.described}" for one in exc.findings[:WARNINGS_MAX]]
        return [*refused, "the last valid policy stays in force"]
