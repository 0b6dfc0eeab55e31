"""The CPU use window that evictions by CPU look at, for a node under another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import NodeSample
from slacktide.streams.advise.demand import BUCKETS, Demand, share_used
from slacktide.streams.decisions.evict.be_cpu_history import BeCpuHistory, figures
from slacktide.streams.replay.model import Range


@dataclass(slots=True)
class CpuWindow:
    """Keeps the window as an agent does, with the other policy's limits."""

    _history: BeCpuHistory = field(default_factory=BeCpuHistory)
    _elapsed_ns: int = 0

    def filled(
        self, sample: NodeSample, span_ms: int, be: Range | None, demand: Demand, facts: NodeFacts,
        pods: Sequence[Pod], policy: Policy,
    ) -> NodeSample:  # fmt: skip
        """Return the sample with the window under that policy. While this is too short, keep the recorded window.

        Args:
            sample: under the other policy, with the recorded window.
            span_ms: the time that the sample covers.
            be: use of best-effort pods; None: unknown.
            demand: of the node, as far as known.
            facts: of the node.
            pods: of the sample.
            policy: the policy to try.
        """
        self._elapsed_ns += span_ms * 1_000_000
        threshold = resource_threshold_on(policy, facts)
        if self._history.asked(threshold):
            seen = figures(sample, facts, pods)
            if seen is not None and be is not None:
                used = round(_expected_milli(be, demand, facts))
                seen = used, seen[1], seen[2], seen[3] + used - seen[0]
            self._history.add(self._elapsed_ns, span_ms, seen)
        window, recorded = self._history.window(threshold), sample.evict.be_cpu
        if window is None or (recorded is not None and window.samples < recorded.samples):
            return sample
        return msgspec.structs.replace(sample, evict=msgspec.structs.replace(sample.evict, be_cpu=window))


def _expected_milli(be: Range, demand: Demand, facts: NodeFacts) -> float:
    """Return an estimate between the bounds, by the demand."""
    capacity = facts.capacity.cpu_milli
    if be.high_milli <= be.low_milli or not capacity:
        return be.low_milli
    low, high = (min(BUCKETS, round(one * 100 / capacity)) for one in (be.low_milli, be.high_milli))
    return be.low_milli + (be.high_milli - be.low_milli) * share_used(demand, {(low, high): 1})
