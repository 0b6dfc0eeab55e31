"""What a node itself sets over the colocation strategy: an annotation, then labels.

Reading: koordinator a7a1b76b, pkg/util/sloconfig/colocation_config.go, pkg/slo-controller/noderesource (node
annotation and label overrides).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.text import json_of
from slacktide.schemas.units import decimal

ANNOTATION_STRATEGY = "node.koordinator.sh/colocation-strategy"
RATIO_LABELS = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpu_reclaim_threshold_pct",
    "node.koordinator.sh/memory-reclaim-ratio": "mem_reclaim_threshold_pct",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "mid_static_cpu_reserved_pct",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "mid_static_mem_reserved_pct",
}
FIELDS = {
    "cpuReclaimThresholdPercent": "cpu_reclaim_threshold_pct",
    "memoryReclaimThresholdPercent": "mem_reclaim_threshold_pct",
    "cpuCalculatePolicy": "cpu_calculate_policy",
    "memoryCalculatePolicy": "mem_calculate_policy",
    "batchCPUThresholdPercent": "batch_cpu_threshold_pct",
    "batchMemoryThresholdPercent": "batch_mem_threshold_pct",
    "degradeTimeMinutes": "degrade_time_min",
    "updateTimeThresholdSeconds": "update_time_threshold_s",
    "resourceDiffThreshold": "resource_diff_threshold",
    "midReclaimMode": "mid_reclaim_mode",
    "midCPUThresholdPercent": "mid_cpu_threshold_pct",
    "midMemoryThresholdPercent": "mid_mem_threshold_pct",
    "midUnallocatedPercent": "mid_unallocated_pct",
    "midStaticCPUReservedPercent": "mid_static_cpu_reserved_pct",
    "midStaticMemoryReservedPercent": "mid_static_mem_reserved_pct",
}
"""The strategy's keys, in the ConfigMap as in the annotation, and the fields they set."""
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TEXTS = frozenset({"cpu_calculate_policy", "mem_calculate_policy", "mid_reclaim_mode"})


def _type_of(field: str) -> Any:
    if field in _TEXTS:
        return str | None
    return (float if field == "resource_diff_threshold" else _Int64) | None


# Types alone are checked here: the reference ignores an annotation it cannot parse, and takes any number in one it can.
_Annotation = msgspec.defstruct(
    "_Annotation",
    [(field, _type_of(field), None) for field in FIELDS.values()],
    rename={field: name for name, field in FIELDS.items()},
    frozen=True,
)


def overlaid(
    colocation: Colocation, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> tuple[Colocation, dict[str, str]]:
    """The strategy in force on a node.

    Args:
        colocation: what holds for it otherwise.
        annotations: the node's; one that is not a JSON object of the strategy's types is ignored whole.
        labels: the node's; a ratio r sets the percent to r x 100, truncated; one below 0 or no decimal is ignored.

    Returns:
        The strategy, and for each field that the node set the annotation or label that did.
    """
    text = annotations.get(ANNOTATION_STRATEGY)
    given = {} if text is None else annotation_fields(text)
    sources = dict.fromkeys(given, ANNOTATION_STRATEGY)
    for label, field in RATIO_LABELS.items():
        percent = ratio_pct(labels[label]) if label in labels else None
        if percent is not None:
            given[field] = percent
            sources[field] = label
    return (msgspec.structs.replace(colocation, **given) if given else colocation), sources


def annotation_fields(text: str) -> dict[str, Any]:
    """Fields and values of the annotation; empty if it is malformed."""
    try:
        read: msgspec.Struct = json_of(text, _Annotation, where=ANNOTATION_STRATEGY)
    except TextError:
        return {}
    return {field: value for field, value in msgspec.structs.asdict(read).items() if value is not None}


def ratio_pct(text: str) -> int | None:
    """Percent of a ratio label; None: ignored. Truncated as in the reference: 0.29 is 28."""
    ratio = decimal(text)
    return int(ratio * 100) if ratio is not None and ratio >= 0 and math.isfinite(ratio * 100) else None
