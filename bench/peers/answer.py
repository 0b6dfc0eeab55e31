"""What every peer answers a sample with: the window of its last 60 s. Pure.

Percentiles are the nearest rank's; pods are columns, in the order of the sample.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from bench.fleet import CAPACITY

WINDOW_S = 60
USABLE_PART = 0.6
"""Of the machine: what batch pods may have less what others use."""
RANKS = [[max(0, ceil(pct * count / 100) - 1) for pct in (50, 90, 95, 99)] for count in range(WINDOW_S + 1)]

PodAverage = tuple[str, float, float, bool]
"""Uid, millicores, bytes, whether it is a batch pod."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Average and percentiles."""
    ordered = sorted(values)
    p50, p90, p95, p99 = RANKS[len(ordered)]
    return {
        "avg": sum(ordered) / len(ordered),
        "p50": ordered[p50],
        "p90": ordered[p90],
        "p95": ordered[p95],
        "p99": ordered[p99],
    }


def answer(
    node: str,
    observed_ms: int,
    cpu_milli: Sequence[float],
    mem_bytes: Sequence[float],
    pods: Sequence[PodAverage],
    system: tuple[float, float],
) -> dict[str, Any]:
    """Answer one sample.

    Args:
        node: its name.
        observed_ms: the sample's time.
        cpu_milli: of the node, one each sample in the window, and
        mem_bytes: likewise.
        pods: averages of those in the sample.
        system: what no pod accounts for in this sample, millicores and bytes.

    """
    usable_milli, usable_bytes = CAPACITY.cpu_milli * USABLE_PART, CAPACITY.mem_bytes * USABLE_PART
    return {
        "node": node,
        "observed_ms": observed_ms,
        "samples": len(cpu_milli),
        "cpu_milli": spread(cpu_milli),
        "mem_bytes": spread(mem_bytes),
        "pods": {
            "uid": [pod[0] for pod in pods],
            "cpu_milli": [pod[1] for pod in pods],
            "mem_bytes": [pod[2] for pod in pods],
        },
        "batch": {
            "cpu_milli": max(0.0, usable_milli - system[0] - sum(pod[1] for pod in pods if not pod[3])),
            "mem_bytes": max(0.0, usable_bytes - system[1] - sum(pod[2] for pod in pods if not pod[3])),
        },
    }
