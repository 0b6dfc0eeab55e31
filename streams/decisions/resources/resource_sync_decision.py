"""Decides whether computed resources differ enough from the published ones to be written.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/util, IsResourceDiff.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because

DIFF_THRESHOLD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One resource as published and as computed; None: absent."""

    of: str
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDecision:
    """Whether to write, and the arithmetic of each resource."""

    need_sync: bool
    because: tuple[Because, ...]


def resource_sync_decision(pairs: Iterable[Pair], diff_threshold: float = DIFF_THRESHOLD) -> SyncDecision:
    """Write if a resource of a tier appeared, disappeared, or changed by more than a fraction of the old amount."""
    because = tuple(_because(pair, diff_threshold) for pair in pairs)
    return SyncDecision(need_sync=any(one.bound in {"appeared", "gone", "moved"} for one in because), because=because)


def _because(pair: Pair, threshold: float) -> Because:
    if pair.old is None or pair.new is None:
        terms: Terms = {name: value for name, value in (("old", pair.old), ("new", pair.new)) if value is not None}
        bound = "absent" if pair.old is pair.new else "appeared" if pair.old is None else "gone"
        return Because(of=pair.of, bound=bound, terms=terms)
    # The reference compares quantities in thousandths, as doubles.
    moved, allowed = abs(float(pair.new * 1000 - pair.old * 1000)), pair.old * 1000 * threshold
    terms = {
        "old": pair.old,
        "new": pair.new,
        "diff_threshold": threshold,
        "moved_thousandths": moved,
        "allowed_thousandths": allowed,
    }
    return Because(of=pair.of, bound="moved" if moved > allowed else "within", terms=terms)
