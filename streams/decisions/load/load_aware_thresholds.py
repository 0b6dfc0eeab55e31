"""Above which usage a node is overloaded, below which it has room: per resource, in the resource's own unit.

Resources go by their Kubernetes names, for thresholds may name any; amounts are millicores for CPU, bytes for
memory, else a count (``with_unit`` shows which).

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
"""Resource name -> amount; an absent one is 0."""
Percents = Mapping[str, float]
"""Resource name -> percent of the capacity."""


def with_unit(resource: str) -> str:
    """A resource's name with its unit last, as terms are named: ``cpu_milli``, ``memory_bytes``."""
    if resource.endswith("cpu"):
        return f"{resource}_milli"
    return f"{resource}_bytes" if resource.endswith("memory") else f"{resource}_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """An operator's percents: up to ``low`` a node takes pods, above ``high`` it gives some away."""

    low: Percents
    high: Percents


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A band on one node, and how it came about per resource."""

    low: Amounts
    high: Amounts
    because: tuple[Because, ...]


def watched_resources(*bands: Band) -> tuple[str, ...]:
    """All that any threshold names, and memory; sorted."""
    return tuple(sorted({"memory"}.union(*(percents for band in bands for percents in (band.low, band.high)))))


def complete_band(band: Band, resources: Sequence[str], *, deviation: bool) -> Band:
    """Percents for every watched resource.

    A resource without a low threshold is not held to anything: both its thresholds are the whole capacity, which
    is 100 percent, or 0 where percents are deviations; a high threshold of its own does not count. One with a low
    threshold alone has 0 as its high one.
    """
    nothing = 0.0 if deviation else 100.0
    return Band(
        low={name: band.low.get(name, nothing) for name in resources},
        high={name: band.high.get(name, 0.0) if name in band.low else nothing for name in resources},
    )


def average_used(resources: Sequence[str], loads: Sequence[tuple[Amounts, Amounts]]) -> Percents:
    """Mean over nodes, (used, capacity) each, of used in percent of the capacity; no capacity: 0 percent.

    Summed exactly, so that the order of the nodes does not change the last digit.
    """
    return {
        name: fsum(_percent(used.get(name, 0), capacity.get(name, 0)) for used, capacity in loads) / max(len(loads), 1)
        for name in resources
    }


def _percent(used: int, capacity: int) -> float:
    return float(used) / float(capacity) * 100.0 if capacity else 0.0


def node_limits(of: str, band: Band, capacity: Amounts, average: Percents | None) -> Limits:
    """The thresholds of one node.

    Args:
        of: What the reasons are for: a path, to which the resource is added.
        band: Complete, see ``complete_band``.
        capacity: Of the node; what it lacks has thresholds of 0.
        average: The nodes' average use in percent, where the band's percents are distances to it. None: they are
            percents of the capacity.
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
    """Where the low and the high threshold are, and what they were figured from."""
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
    """The reference's order of multiplication: it decides the last unit."""
    return int(float(percent) * 0.01 * float(capacity))
