"""The annotation with a node's own thresholds of use, which override the cluster's, kind by kind.

Source: koordinator a7a1b76b, apis/extension/load_aware.go, CustomUsageThresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.load.load_aware_estimator import Aggregation, Percents, Thresholds

ANNOTATION = "scheduling.koordinator.sh/usage-thresholds"
STATISTICS = ("avg", "p50", "p90", "p95", "p99")
_PerResource = dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class _Aggregated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0s"


class _Custom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    prod_usage_thresholds: _PerResource | None = None
    aggregated_usage: _Aggregated | None = None


def own_thresholds(annotations: Mapping[str, str]) -> Thresholds:
    """Parse the node's annotation; empty without it. Raises BadMessageError if the annotation is invalid."""
    text = annotations.get(ANNOTATION)
    if not text:
        return Thresholds()
    try:
        custom: _Custom = json_of(text, _Custom, where=ANNOTATION)
        aggregated = custom.aggregated_usage or _Aggregated()
        return Thresholds(
            usage=_percents(custom.usage_thresholds),
            prod=_percents(custom.prod_usage_thresholds),
            aggregated=_percents(aggregated.usage_thresholds),
            aggregation=_aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        )
    except ValueError as exc:
        raise BadMessageError(ANNOTATION, str(exc)) from exc


def _percents(given: _PerResource | None) -> Percents | None:
    return Percents(given.get("cpu", 0), given.get("memory", 0)) if given else None


def _aggregation(kind: str, duration: str) -> Aggregation | None:
    if not kind:
        return None
    if kind not in STATISTICS:
        raise ValueError(f"usageAggregationType is {kind!r}; accepted: {', '.join(STATISTICS)}")
    return Aggregation(kind, 0 if duration == "0s" else seconds_of(duration))
