"""Selects outcomes for the audit: evictions, throttling and its end."""

from __future__ import annotations

from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.decisions.evict.node_evict import CPU_RULES, MEMORY_RULES

HOLDS = frozenset({"throttled", "lifted", "frozen", "thawed"})
"""Bounds of actions that throttle or freeze best-effort pods, and of those that end it."""
NOTICE = "notice"
"""Bound of an eviction's announcement, and of each wait for it."""
ENDS = frozenset({"ended", "killed", "stuck"})
"""Bounds of how an eviction ended."""


def audited(outcome: NodeOutcome) -> bool:
    """Return whether the audit keeps an outcome: actions on pods and failures, but no requests or dry runs."""
    if outcome.knob is not None or outcome.result in {"refused", "dry-run", "gap"}:
        return False
    if outcome.pod is None:  # the best-effort limit: the audit omits suppression
        return outcome.bound in HOLDS and outcome.rule in MEMORY_RULES | CPU_RULES
    return outcome.result != "unchanged" or outcome.bound in HOLDS
