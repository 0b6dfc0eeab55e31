"""Reports critical pods in the best-effort cgroup, and the effect on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.streams.decisions.known_pods import is_limited_mid, is_spared
from slacktide.streams.explain.evidence import Finding

NAMED_MAX = 3
_OTHERS = "the other pods of the tier have a quota each, which together equal the limit"


def tier_findings(pods: Sequence[Pod]) -> Iterator[Finding]:
    """Report a node's excluded critical pods, and its mid pods with their own limit."""
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    if spared := _named([pod for pod in live if is_spared(pod)]):
        yield Finding(
            name="tier.critical",
            text=f"critical pods without requests are in the best-effort tier: {spared}; {_OTHERS}",
            advice="give them CPU requests: then one quota limits the tier, and its pods share unused CPU",
        )
    if mid := _named([pod for pod in live if is_limited_mid(pod)]):
        text = f"mid pods in the best-effort tier are not suppressed: {mid}; {_OTHERS}"
        yield Finding(name="tier.mid", text=text)


def _named(pods: Sequence[Pod]) -> str:
    names = [f"{pod.namespace}/{pod.name}" for pod in pods[:NAMED_MAX]]
    return ", ".join([*names, *([f"{len(pods) - NAMED_MAX} more"] if len(pods) > NAMED_MAX else [])])


def critical_findings(pod: Pod) -> Iterator[Finding]:
    """Report a critical pod that suppression does not limit."""
    if is_spared(pod):
        text = "critical and without requests: it is in the best-effort tier, but is not suppressed"
        yield Finding(name="tier.critical", text=text, advice="give it CPU requests")
