"""Estimates a pod's usage before it is measured.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/estimator/default_estimator.go, EstimatePod.
The products are doubles in the reference's order, which determines the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_args import (
    NOTHING,
    RESOURCES,
    UNSET,
    Amounts,
    Factors,
    LoadAwareArgs,
    Percents,
    Resource,
)
from slacktide.streams.decisions.numa.placement import ZonedPod

DEFAULT_FACTORS = Factors(cpu_pct=85, mem_pct=70)
DEFAULT_AMOUNTS = Amounts(cpu_milli=250, mem_bytes=200 * 2**20)
"""The estimate per resource of a production or batch pod without request and limit."""

_FIELDS = {
    "koord-prod": ("cpu_milli", "mem_bytes"),
    "koord-mid": ("mid_cpu_milli", "mid_mem_bytes"),
    "koord-batch": ("batch_cpu_milli", "batch_mem_bytes"),
    "koord-free": ("free_cpu_milli", "free_mem_bytes"),
}
_WITH_DEFAULT = frozenset({"koord-prod", "koord-batch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAwarePod:
    """A pod with the annotations, conditions and owner that load-aware scheduling reads."""

    pod: Pod
    custom_factors: Factors = UNSET
    custom_after_scheduled_s: int | None = None
    """None or negative: the cluster's setting."""
    custom_after_initialized_s: int | None = None
    scheduled_s: float | None = None
    initialized_s: float | None = None
    daemonset: bool = False
    zoned: ZonedPod | None = None
    """Requests to NUMA zones, if any. Load-aware scheduling does not read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Millicores and bytes, each with its arithmetic, CPU first."""

    amounts: Amounts
    because: tuple[Because, Because]


def round_half_away(value: float) -> int:
    """Round halves away from zero. Adding 0.5 instead would round 0.49999999999999994 up."""
    whole = int(value)
    if abs(value - whole) < 0.5:
        return whole
    return whole + (1 if value > 0 else -1)


def estimate(asked: LoadAwarePod, args: LoadAwareArgs) -> Estimate:
    """Compute factor x the larger of request and limit, at most the limit, per resource of the pod's class."""
    of_class = effective_priority_class(asked.pod)
    requests, limits = _of_class(asked, of_class, args)
    defaults = DEFAULT_AMOUNTS if of_class in _WITH_DEFAULT else NOTHING
    factors = _factors(asked, args)
    cpu, mem = RESOURCES
    cpu_milli, cpu_because = _estimated(cpu, requests.cpu_milli, limits.cpu_milli, factors.cpu_pct, defaults.cpu_milli)
    mem_bytes, mem_because = _estimated(mem, requests.mem_bytes, limits.mem_bytes, factors.mem_pct, defaults.mem_bytes)
    return Estimate(amounts=Amounts(cpu_milli, mem_bytes), because=(cpu_because, mem_because))


def _factors(asked: LoadAwarePod, args: LoadAwareArgs) -> Percents:
    given = (asked.custom_factors if args.allow_customize else UNSET, args.factors, DEFAULT_FACTORS)
    return Percents(
        cpu_pct=next(factors.cpu_pct for factors in given if factors.cpu_pct is not None),
        mem_pct=next(factors.mem_pct for factors in given if factors.mem_pct is not None),
    )


def _of_class(asked: LoadAwarePod, of_class: str, args: LoadAwareArgs) -> tuple[Amounts, Amounts]:
    """Return requests and limits of the class's resources. The reference has none for free pods."""
    if of_class == "koord-free" and not args.free_class_enable:
        return NOTHING, NOTHING
    cpu, mem = _FIELDS[of_class]

    def amounts(resources: Resources) -> Amounts:
        return Amounts(getattr(resources, cpu) or 0, getattr(resources, mem) or 0)

    return amounts(asked.pod.requests), amounts(asked.pod.limits)


def _estimated(resource: Resource, request: int, limit: int, factor_pct: int, default: int) -> tuple[int, Because]:
    """Estimate one resource; ``bound``: scaled, capped, default (no request) or nothing."""
    of, unit = f"{resource.name}_{resource.unit}", resource.unit
    quantity = max(request, limit)
    terms: Terms = {f"request_{unit}": request, f"limit_{unit}": limit}
    if not quantity:
        terms |= {f"estimate_{unit}": default}
        return default, Because(of=of, bound="default" if default else "nothing", terms=terms)
    scaled = round_half_away(float(quantity) * float(factor_pct) / 100)
    capped = 0 < limit < scaled
    amount = limit if capped else scaled
    terms |= {"factor_pct": factor_pct, f"scaled_{unit}": scaled, f"estimate_{unit}": amount}
    return amount, Because(of=of, bound="capped" if capped else "scaled", terms=terms)
