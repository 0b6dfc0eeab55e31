"""The rule for batch resources over arrays; ``streams/decisions/resources/batch_resource.py`` is the rule itself.

A property test compares both. As in what workers publish, no node offers more than its capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slacktide.schemas.policy.strategies import CalculatePolicy
from slacktide.streams.assess.usage import Amounts, Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A policy's terms for one resource."""

    reclaim_pct: int
    cap_pct: int | None
    policy: CalculatePolicy


def sold(amounts: Amounts, terms: Terms) -> Matrix:
    """Compute whole millicores or bytes per node and step; NaN for gaps."""
    kept = np.where(np.isnan(amounts.reserved), 0, amounts.reserved) if terms.policy == "request" else amounts.kept
    high = {"request": amounts.requested, "maxUsageRequest": amounts.max_used_request}.get(
        terms.policy, amounts.high_taken
    )
    margin = np.trunc(amounts.capacity * ((100 - terms.reclaim_pct) / 100))
    left: Matrix = np.maximum(amounts.capacity - margin - np.where(np.isnan(kept), 0, kept) - high, 0)
    cap_pct = 100 if terms.cap_pct is None else min(terms.cap_pct, 100)
    left = np.minimum(left, np.trunc(amounts.capacity * (cap_pct / 100)))
    result: Matrix = np.where(amounts.known, left, np.nan)
    return result
