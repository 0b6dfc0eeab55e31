"""Computes the usage above which a node is overloaded, and below which it has room, per resource.

Thresholds may name any Kubernetes resource. Amounts are millicores for CPU, bytes for memory, else a count.
Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware, newThresholds, getNodeThresholds,
calcAverageResourceUsagePercent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because

Amounts = Mapping[str, int]
"""Resource name -> amount; a missing one is 0."""
Percents = Mapping[str, float]
"""Resource name -> percent of the capacity."""


def with_unit(resource: str) -> str:
    """Append the unit to a resource's name, as in terms: ``cpu_milli``, ``memory_bytes``."""
    if resource.endswith("cpu"):
        return f"{resource}_milli"
    return f"{resource}_bytes" if resource.endswith("memory") else f"{resource}_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """An operator's percentages: a node accepts pods up to ``low``, and loses pods above ``high``."""

    low: Percents
    high: Percents


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A band's thresholds on one node, with their arithmetic per resource."""

    low: Amounts
    high: Amounts
    because: tuple[Because, ...]


def watched_resources(*bands: Band) -> tuple[str, ...]:
    """Return memory and all resources with a threshold, sorted."""
    return tuple(sorted({"memory"}.union(*(percents for band in bands for percents in (band.low, band.high)))))


def complete_band(band: Band, resources: Sequence[str], *, deviation: bool) -> Band:
    """Return percentages for every watched resource. A missing high threshold is 0.

    A resource without a low threshold is not limited, even if it has a high one: both thresholds are the whole
    capacity. That is 100 percent, or 0 if percentages are deviations.
    """
    nothing = 0.0 if deviation else 100.0
    return Band(
        low={name: band.low.get(name, nothing) for name in resources},
        high={name: band.high.get(name, 0.0) if name in band.low else nothing for name in resources},
    )


def average_used(resources: Sequence[str], loads: Sequence[tuple[Amounts, Amounts]]) -> Percents:
    """Compute the nodes' mean usage in percent of capacity, from (used, capacity); no capacity: 0 percent.

    The sum is exact, so the order of the nodes does not change the last digit.
    """
    return {
        name: fsum(_percent(used.get(name, 0), capacity.get(name, 0)) for used, capacity in loads) / max(len(loads), 1)
        for name in resources
    }


def _percent(used: int, capacity: int) -> float:
    return float(used) / float(capacity) * 100.0 if capacity else 0.0


def node_limits(of: str, band: Band, capacity: Amounts, average: Percents | None) -> Limits:
    """Compute one node's thresholds from a complete band. Resources without capacity have thresholds of 0.

    With ``average``, the nodes' average usage in percent, the band's percentages are distances from it. ``of`` is the
    path of the reasons.
    """
    low, high, because = {}, {}, []
    for name in band.low:
        whole, unit = capacity.get(name, 0), with_unit(name)
        bound, low_pct, high_pct, distances = _percents(band, name, average)
        low[name], high[name] = _share(whole, low_pct), _share(whole, high_pct)
        terms: Terms = {f"capacity_{unit}": whole} | distances | {"low_pct": low_pct, "high_pct": high_pct}
        terms |= {f"low_{unit}": low[name], f"high_{unit}": high[name]}
        because.append(Because(of=f"{of}/{name}", bound=bound, terms=terms))
    return Limits(low=low, high=high, because=tuple(because))


def _percents(band: Band, name: str, average: Percents | None) -> tuple[str, float, float, Terms]:
    below, above = band.low[name], band.high[name]
    if average is None:
        return "percent", below, above, {}
    if below == 0:
        return "unlimited", 100.0, 100.0, {}
    mean = average[name]
    distances: Terms = {"average_pct": mean, "below_pct": below, "above_pct": above}
    return "deviation", _clamp(mean - below), _clamp(mean + above), distances


def _clamp(percent: float) -> float:
    return min(max(percent, 0.0), 100.0)


def _share(capacity: int, percent: float) -> int:
    """Multiply in the reference's order, which determines the last unit."""
    return int(float(percent) * 0.01 * float(capacity))
