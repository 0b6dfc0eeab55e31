"""Acts of the audit as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slacktide.deploy.cli.text import count, instant, table
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.audit.acts import Act, what
from slacktide.streams.decisions.evict_observed import observed

_HEAD = ("WHEN", "POD", "NODE", "WHAT", "RULE", "OBSERVED", "POLICY", "CREDIT", "BY", "WHY")
_NONE = "Kafka has no such record"


def shown(acts: Sequence[Act]) -> str:
    """A row for each, and a line that sums up."""
    if not acts:
        return _NONE
    sums = Counter(what(one.body) for one in acts)
    in_all = ", ".join(f"{number} {word}" for word, number in sorted(sums.items()))
    return f"{table(_HEAD, [_row(one.body) for one in acts])}\n{count(len(acts), 'act')}: {in_all}"


def _row(one: NodeOutcome) -> tuple[str, ...]:
    pod = "all best-effort pods" if one.pod is None else f"{one.pod.namespace}/{one.pod.name}"
    spent = "-" if one.spent is None else f"{one.spent.evictions} of epoch {one.spent.epoch}"
    seen = observed(one.terms) or "-"
    return (
        instant(one.acted_ms),
        pod,
        one.node,
        what(one),
        one.rule,
        seen,
        one.policy_version or "-",
        spent,
        one.origin,
        one.reason or "-",
    )
