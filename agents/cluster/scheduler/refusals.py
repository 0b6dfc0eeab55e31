"""Messages with the reasons why nodes refuse a pod. Pure.

A kube-scheduler groups equal messages, and an Event holds 1,024 characters. So nodes above the same threshold share one
message with the range of their use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slacktide.agents.cluster.scheduler.own_thresholds import ANNOTATION
from slacktide.agents.cluster.scheduler.zone_words import lacking_zones
from slacktide.schemas.policy.placement import KEY
from slacktide.schemas.zones import ZONES_STALE_S
from slacktide.streams.decisions.load.load_aware_args import RESOURCES
from slacktide.streams.decisions.load.load_aware_scheduling import Check
from slacktide.streams.decisions.load.pod_placement import Asking, Refusal
from slacktide.streams.decisions.numa.placement import STALE, UNREAD

WORDS = {
    "stale": "its agent is silent",
    "frozen": "its figures are not fresh",
    "mem_over_line": "best-effort pods are being evicted from it, because memory is short",
    "evicting": "evicted pods are still terminating on it",
    STALE: f"its agent has not published NUMA zones for {ZONES_STALE_S:.0f} s",
    UNREAD: "its NUMA zones, or the allocations of pods in them, cannot be read",
}
"""For reasons that are not user-facing terms."""
_MIB = 2**20
PERCENT = " percent"
"""A kube-scheduler uses a message as a format string for its Event, so "%" would garble it."""


def worded(pod: Asking, refused: Mapping[str, Refusal]) -> dict[str, str]:
    """Message by node, in the given order."""
    alike: dict[tuple[object, ...], dict[str, Refusal]] = {}
    for node, one in refused.items():
        alike.setdefault(_kind(one), {})[node] = one
    texts = {kind: _text(pod, some) for kind, some in alike.items()}
    return {node: texts[_kind(one)] for node, one in refused.items()}


def _kind(one: Refusal) -> tuple[object, ...]:
    limit = None if one.check is None else one.check.limit.threshold_pct
    return one.reason, one.own, limit


def _text(pod: Asking, refused: Mapping[str, Refusal]) -> str:
    alike = list(refused.values())
    first = alike[0]
    checks = [one.check for one in alike if one.check is not None]
    if checks:
        return f"{first.reason}: {_over(pod, first, checks)}"
    if first.short is not None:
        most = max(one.short.left for one in alike if one.short is not None)
        resource = first.short.resource
        asks, left = _amount(resource, first.short.wanted), _amount(resource, most)
        return f"{first.reason}: pod requests {asks}, but only {left} is free"
    lacking = {node: one.zones for node, one in refused.items() if one.zones is not None and one.zones.lacks}
    if lacking:
        return f"{first.reason}: {lacking_zones(lacking)}"
    return WORDS.get(first.reason, first.reason)


def _over(pod: Asking, first: Refusal, checks: Sequence[Check]) -> str:
    limit, counts = checks[0].limit, checks[0].pod
    name = RESOURCES[limit.resource].name
    where = f"the node's annotation {ANNOTATION}" if first.own else KEY
    uses = _range(one.limit.existing * 100 // one.limit.allocatable for one in checks)
    because = pod.candidate.estimate.because[limit.resource]
    unit = RESOURCES[limit.resource].unit
    asks = max(int(because.terms[f"request_{unit}"]), int(because.terms[f"limit_{unit}"]))
    share = "it requests none"
    if because.bound == "scaled":
        share = (
            f"estimatedScalingFactors.{name} {because.terms['factor_pct']}{PERCENT} of {_amount(limit.resource, asks)}"
        )
    elif because.bound == "capped":
        share = "its limit"
    return (
        f"over {where} {first.key}.{name} {limit.threshold_pct}{PERCENT}: node uses {uses}{PERCENT}, "
        f"pod counts {_amount(limit.resource, counts)} ({share})"
    )


def _range(percents: Iterable[int]) -> str:
    known = sorted(percents)
    return str(known[0]) if known[0] == known[-1] else f"{known[0]}-{known[-1]}"


def _amount(resource: int, amount: int) -> str:
    """In Kubernetes' notation."""
    return f"{amount}m" if RESOURCES[resource].unit == "milli" else f"{-(-amount // _MIB)}Mi"
