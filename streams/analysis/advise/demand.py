"""Estimates the unlimited CPU demand of best-effort pods from a trace in which they were often throttled.

A sample without throttling shows the demand. A throttled one shows only a lower bound: it is censored. The
product-limit estimator (Kaplan and Meier, 1958) uses both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import NodeSample
from slacktide.streams.analysis.replay.model import Range
from slacktide.streams.decisions.evict.be_cpu_history import BeCpuHistory, figures

BUCKETS = 100
"""CPU use in percent of the node."""


class Demand(msgspec.Struct, kw_only=True):
    """One node: time by use in percent of its capacity, ms."""

    shown: dict[int, int] = {}
    """Time by use, if not throttled: the use is the demand."""
    censored: dict[int, int] = {}
    """Throttled: demand exceeds use."""

    def count(self, use_pct: int, span_ms: int, *, held_back: bool) -> None:
        """Add one sample."""
        times = self.censored if held_back else self.shown
        times[use_pct] = times.get(use_pct, 0) + span_ms

    def survival(self) -> list[float]:
        """Return the probability of a larger demand for each percent."""
        at_risk = float(sum(self.shown.values()) + sum(self.censored.values()))
        alive, found = 1.0, []
        for pct in range(BUCKETS + 1):
            ended = self.shown.get(pct, 0)
            if at_risk > 0:
                alive *= 1 - ended / at_risk
            at_risk -= ended + self.censored.get(pct, 0)
            found.append(alive)
        return found


def share_used(demand: Demand, raises: Mapping[tuple[int, int], int]) -> float:
    """Return the share of the CPU above their limit that pods would have used, 0 to 1.

    Above the largest observed demand, demand counts as unlimited. Without throttling: 1. ``raises``: time by use under
    the recorded limit and maximum use under the other one, in percent.
    """
    alive = demand.survival()
    areas = list(accumulate(alive, initial=0.0))  # up to each percent: the expected use under that limit
    gained = most = 0.0
    for (low, high), span_ms in raises.items():
        most += (high - low) * span_ms
        gained += span_ms * ((areas[high] - areas[low]) / alive[low] if alive[low] > 0 else high - low)
    return min(1.0, gained / most) if most else 1.0


def share_over(demand: Demand, crossings: Mapping[tuple[int, int], int]) -> float:
    """Return the share, 0 to 1, of the time in which pods could exceed a line and would.

    ``crossings``: time by use under the recorded limit and use at the line, in percent.
    """
    alive = demand.survival()
    passed = sum(ms * (alive[line] / alive[use] if alive[use] > 0 else 1.0) for (use, line), ms in crossings.items())
    whole = sum(crossings.values())
    return min(1.0, passed / whole) if whole else 1.0


@dataclass(slots=True)
class CpuWindow:
    """Keeps the CPU use window that evictions look at as an agent does, with another policy's limits."""

    _history: BeCpuHistory = field(default_factory=BeCpuHistory)
    _elapsed_ns: int = 0

    def filled(
        self, sample: NodeSample, span_ms: int, be: Range | None, demand: Demand, facts: NodeFacts,
        pods: Sequence[Pod], policy: Policy,
    ) -> NodeSample:  # fmt: skip
        """Return the sample with the window under that policy. While this is too short, keep the recorded window.

        ``sample``: under the other policy, with the recorded window, for ``span_ms``. ``be``: use of best-effort pods;
        None: unknown. ``demand``: of the node, as far as known.
        """
        self._elapsed_ns += span_ms * 1_000_000
        threshold = resource_threshold_on(policy, facts)
        if self._history.asked(threshold):
            seen = figures(sample, facts, pods)
            if seen is not None and be is not None:
                expected_milli, capacity = be.low_milli, facts.capacity.cpu_milli
                if be.high_milli > be.low_milli and capacity:  # between the bounds, by the demand
                    low, high = (min(BUCKETS, round(one * 100 / capacity)) for one in (be.low_milli, be.high_milli))
                    expected_milli += (be.high_milli - be.low_milli) * share_used(demand, {(low, high): 1})
                used = round(expected_milli)
                seen = used, seen[1], seen[2], seen[3] + used - seen[0]
            self._history.add(self._elapsed_ns, span_ms, seen)
        window, recorded = self._history.window(threshold), sample.evict.be_cpu
        if window is None or (recorded is not None and window.samples < recorded.samples):
            return sample
        return msgspec.structs.replace(sample, evict=msgspec.structs.replace(sample.evict, be_cpu=window))
