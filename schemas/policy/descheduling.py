"""``descheduling-config``, Slacktide's own key: when best-effort pods leave loaded nodes for ones that are not.

Names, defaults and ranges are those of the reference's LowNodeLoadArgs, but for ``dryRun`` and ``intervalSeconds``:
koordinator a7a1b76b, pkg/descheduler/apis/config/types_loadaware.go.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.schemas.bounds import Count, Percent
from slacktide.schemas.message import Message

Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]


class UsagePercents(Message, frozen=True, kw_only=True):
    """Percents of allocatable, or distances to the mean use of nodes. A resource without a low threshold is ignored."""

    cpu_pct: Percent | None = None
    """Of CPU."""
    mem_pct: Percent | None = None
    """Of memory."""


class UsageWeights(Message, frozen=True, kw_only=True):
    """How much each resource counts in the order of nodes and of pods."""

    cpu: Weight = 1
    """Of CPU."""
    mem: Weight = 1
    """Of memory."""


class Anomaly(Message, frozen=True, kw_only=True):
    """When pods are evicted from a node above its high thresholds."""

    consecutive_abnormalities: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 5
    """Passes in a row in which it may be over; 1: none."""


class Descheduling(Message, frozen=True, kw_only=True):
    """Without thresholds no pass runs; with ``dry_run`` a pass only reports the pods that it would evict."""

    dry_run: bool = True
    """Publish which pods a pass would evict, and evict none."""
    low: UsagePercents = UsagePercents()
    """Up to them a node takes pods."""
    high: UsagePercents = UsagePercents()
    """Above one of them a node gives some away."""
    prod_low: UsagePercents = UsagePercents()
    """The same of production pods alone."""
    prod_high: UsagePercents = UsagePercents()
    use_deviation: bool = False
    """The percents are distances to the nodes' mean use."""
    too_few_targets: Count = 0
    """Pods leave only if more nodes than this have room."""
    node_fit: bool = True
    """Only what would find a place leaves."""
    weights: UsageWeights = UsageWeights()
    """How much each resource counts in the order of nodes and pods."""
    anomaly: Anomaly = Anomaly()
    """How long a node may be over its thresholds."""
    interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """From one pass to the next."""

    @property
    def wanted(self) -> bool:
        """Whether any resource is looked at."""
        return any(one is not None for band in (self.low, self.prod_low) for one in (band.cpu_pct, band.mem_pct))
