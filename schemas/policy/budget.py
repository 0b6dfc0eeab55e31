"""``eviction-budget-config``, Slacktide's own: how many pods may be evicted in any while, in the whole cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.schemas.bounds import Count
from slacktide.schemas.message import Message


class EvictionBudget(Message, frozen=True, kw_only=True):
    """The most evictions within any ``interval_s``. 0: none at all."""

    cluster_max: Count = 20
    """Most evictions in the cluster within the interval."""
    node_max: Count = 5
    """Most evictions on one node within the interval."""
    namespace_max: Count = 10
    """Most evictions in one namespace within the interval."""
    interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    """Interval of the limits."""
    lease_s: Annotated[int, msgspec.Meta(ge=3, le=600)] = 12
    """How long a node may use its credit without a renewal. The governor renews it at half of that."""
