"""Computes the CPU and memory request of a pod from its containers and init containers.

Reading: kubernetes v1.34, component-helpers/resource/helpers.go, PodRequests, which the reference calls.
"""

from __future__ import annotations

from decimal import ROUND_CEILING

from slacktide.schemas.kubernetes_fields import Amounts, Needs, Parts, parts_of
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because, Figured


def pod_requests(needs: Needs) -> Figured:
    """Return the larger of containers plus sidecars and of the initialization peak, plus the overhead."""
    parts = parts_of(needs, "requests")
    cpu = _because(parts, "cpu_milli", "cpu_milli", "milli")
    mem = _because(parts, "mem_bytes", "memory_bytes", "bytes")
    return Figured.by("request", cpu, mem)


def _because(parts: Parts, field: str, of: str, unit: str) -> Because:
    containers, sidecars, peak = (_whole(each, field) for each in (parts.containers, parts.sidecars, parts.peak))
    overhead, total = _whole(parts.overhead, field), _whole(parts.total, field)
    terms: Terms = {
        f"containers_{unit}": containers,
        f"sidecars_{unit}": sidecars,
        f"init_peak_{unit}": peak,
        f"overhead_{unit}": overhead,
        f"request_{unit}": total + overhead,
    }
    if field in parts.pod_level:
        return Because(of=of, bound="pod_level", terms=terms)
    return Because(of=of, bound="init" if peak > containers + sidecars else "containers", terms=terms)


def _whole(amounts: Amounts, field: str) -> int:
    return int(amounts[field].to_integral_value(ROUND_CEILING)) if field in amounts else 0
