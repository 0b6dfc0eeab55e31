"""Decides which batch resources to write to a Node.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, prepareNodeForBatch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.units import decimal
from slacktide.streams.decisions.because import Because

NONE = Resources(batch_cpu_milli=0, batch_mem_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Resources of a priority class that another scheduler allocated."""

    priority_class: str
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Batch CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    allocatable: Resources | None
    """For the Node's capacity and allocatable; None: both resources are removed."""
    origin: Resources
    """For the annotation: the amounts before the subtraction of third-party allocations."""
    because: tuple[Because, Because]


def batch_resource_publish(
    calculated: Resources | None, ratio: str | None, third_party: Sequence[Allocation] | None
) -> Published:
    """Amplify CPU by the node's normalization ratio, then subtract third-party allocations from CPU and memory.

    ``calculated`` None: the node is degraded or reset. ``ratio``: annotation
    node.koordinator.sh/cpu-normalization-ratio; ignored unless it is a decimal above 1. ``third_party``: allocations of
    other schedulers.
    """
    if calculated is None:
        cpu, mem = (Because(of=of, bound="degraded", terms={}) for of in ("batch_cpu_milli", "batch_memory_bytes"))
        return Published(allocatable=None, origin=NONE, because=(cpu, mem))
    given = [one.resources for one in third_party or () if one.priority_class == "koord-batch"]
    cpu = _cpu(calculated.batch_cpu_milli or 0, _ratio(ratio), sum(one.batch_cpu_milli or 0 for one in given))
    mem = _less(
        "batch_memory_bytes", "bytes", calculated.batch_mem_bytes or 0, sum(one.batch_mem_bytes or 0 for one in given)
    )
    return Published(
        allocatable=Resources(
            batch_cpu_milli=int(cpu.terms["published_milli"]), batch_mem_bytes=int(mem.terms["published_bytes"])
        ),
        origin=Resources(
            batch_cpu_milli=int(cpu.terms["origin_milli"]), batch_mem_bytes=int(mem.terms["origin_bytes"])
        ),
        because=(cpu, mem),
    )


def _ratio(text: str | None) -> float | None:
    ratio = None if text is None else decimal(text)
    return ratio if ratio is not None and 1 < ratio < math.inf else None


def _cpu(calculated: int, ratio: float | None, given_away: int) -> Because:
    if ratio is None:
        return _less("batch_cpu_milli", "milli", calculated, given_away)
    # Thousandths of millicores, truncated, then rounded up: the reference amplifies a quantity's milli value.
    amplified = -(-int(calculated * 1000 * ratio) // 1000)
    less = _less("batch_cpu_milli", "milli", amplified, given_away)
    head: Terms = {"calculated_milli": calculated, "normalization_ratio": ratio}
    bound = "amplified" if less.bound == "formula" else less.bound
    return Because(of=less.of, bound=bound, terms=head | less.terms, adds=less.adds)


def _less(of: str, unit: str, origin: int, given_away: int) -> Because:
    left = origin - given_away
    terms: Terms = {f"origin_{unit}": origin, f"third_party_{unit}": given_away, f"published_{unit}": max(0, left)}
    adds = (f"+origin_{unit}", f"-third_party_{unit}")
    return Because(of=of, bound="formula" if left >= 0 else "exhausted", terms=terms, adds=adds)
