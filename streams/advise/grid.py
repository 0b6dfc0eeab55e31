"""The grid of policies: one policy with other thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec

from slacktide.schemas.policy import Policy, versioned
from slacktide.streams.advise.advice import Tag

SUPPRESS_PCT = (45, 50, 55, 60, 65, 70, 75, 80, 85)
"""The default grid of ``cpuSuppressThresholdPercent``."""
POLICIES_MAX = 64


def grid(base: Policy, suppress_pct: Sequence[int], mem_evict_pct: Sequence[int]) -> list[tuple[Tag, Policy]]:
    """Build one policy per pair of thresholds, safest first. Node strategies are unchanged.

    Suppression is enabled in each, even if the policy in force disables it.

    Args:
        base: the policy in force.
        suppress_pct: values of ``cpuSuppressThresholdPercent``; empty: that of the policy.
        mem_evict_pct: values of ``memoryEvictThresholdPercent``; empty: that of the policy. The lower threshold keeps
            its distance.
    """
    threshold = base.resource_threshold
    memory: Sequence[int | None] = sorted(set(mem_evict_pct)) or [threshold.mem_evict_threshold_pct]
    found = []
    for suppress, evict in product(sorted(set(suppress_pct)) or [threshold.cpu_suppress_threshold_pct], memory):
        lower = threshold.mem_evict_lower_pct
        if lower is not None and evict is not None and threshold.mem_evict_threshold_pct is not None:
            lower = max(0, lower + evict - threshold.mem_evict_threshold_pct)
        tried = msgspec.structs.replace(
            threshold,
            enable=True,
            cpu_suppress_threshold_pct=suppress,
            mem_evict_threshold_pct=evict,
            mem_evict_lower_pct=lower,
        )
        policy = versioned(msgspec.structs.replace(base, resource_threshold=tried))
        tag = Tag(policy_version=policy.version, cpu_suppress_threshold_pct=suppress, mem_evict_threshold_pct=evict)
        found.append((tag, policy))
    return found
