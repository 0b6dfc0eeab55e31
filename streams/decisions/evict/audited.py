"""Selects outcomes for the audit, and formats the cause of an eviction."""

from __future__ import annotations

from slacktide.schemas.message import Terms
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


def observed(terms: Terms) -> str:
    """Format the observed value and its threshold; "" if the rule is unknown."""
    if "used_pct" in terms:
        return f"{terms['used_pct']:g}% used, threshold {terms['threshold_pct']:g}%"
    if "average_satisfied_ratio" in terms:
        ratio = 100 * terms["average_satisfied_ratio"]
        return f"{ratio:.0f}% of the requested CPU was had, threshold {terms['lower_pct']:g}%"
    for unit in ("milli", "bytes"):
        sold = terms.get(f"allocatable_{unit}")
        if sold is not None and f"requested_{unit}" in terms:
            share = f"{100 * terms[f'requested_{unit}'] / sold:.0f}%" if sold else "all, for none is sold,"
            return f"{share} of the batch allocatable was requested, threshold {terms['threshold_pct']:g}%"
    return ""
