"""Which critical pods lie in the best-effort tier, and what that changes for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.streams.decisions.spared_pods import is_spared
from slacktide.streams.explain.evidence import Finding

NAMED_MAX = 3


def tier_findings(pods: Sequence[Pod]) -> Iterator[Finding]:
    """Of a node's pods: those that are spared."""
    spared = [pod for pod in pods if pod.phase in LIVE_PHASES and is_spared(pod)]
    if not spared:
        return
    names = [f"{pod.namespace}/{pod.name}" for pod in spared[:NAMED_MAX]]
    more = [f"{len(spared) - NAMED_MAX} more"] if len(spared) > NAMED_MAX else []
    yield Finding(
        name="tier.critical",
        severity="note",
        text=f"critical and without requests, so in the best-effort tier: {', '.join([*names, *more])}; the other pods "
        "of the tier are held each by its own quota, which sum to the allowance",
        advice="give it CPU requests: then one quota holds the tier, and idle pods leave their part to others",
    )


def critical_findings(pod: Pod) -> Iterator[Finding]:
    """The same of one pod."""
    if is_spared(pod):
        text = "critical and without requests: it lies in the best-effort tier and is not held"
        yield Finding(name="tier.critical", severity="note", text=text, advice="give it CPU requests")
