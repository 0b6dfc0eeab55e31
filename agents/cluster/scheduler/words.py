"""Words for why nodes refuse a pod, and which NUMA zones it gets.

A kube-scheduler groups equal messages, and an Event holds 1,024 characters. So nodes above the same threshold share one
message with the range of their use.
"""

from collections.abc import Iterator, Mapping, Sequence

from slacktide.schemas.policy.configmap import key_of
from slacktide.schemas.zones import ZONES_STALE_S
from slacktide.streams.decisions.load.load_aware_estimator import ANNOTATION, RESOURCES
from slacktide.streams.decisions.load.load_aware_scheduling import Check
from slacktide.streams.decisions.load.pod_placement import Asking, Refusal
from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.placement import STALE, UNREAD, Reservation, ZonesGiven, ZonesRefusal
from slacktide.streams.decisions.numa.topology import CPU, Amounts, is_memory

RESERVED_NAMED = 3
_MIB = 2**20


def lacking_zones(lacking: Mapping[str, ZonesRefusal]) -> str:
    """Return what the pod requests of zones, the closest node, and whose reservations count there."""
    node = min(lacking, key=lambda one: (-lacking[one].lacks[0].free, one))
    refusal = lacking[node]
    lacks = [_of_lack(lack, before) for lack, before in zip(refusal.lacks, refusal.free_before, strict=True)]
    return f"closest is node {node}: {'; '.join([*lacks, *_reserved(refusal.reservations)])}"


def given_zones(given: ZonesGiven) -> str:
    """Return the zones that a kubelet would assign, their free resources before and after, and counted reservations."""
    parts = []
    for one in given.requests:
        name = "pod" if one.container is None else f"container {one.container}"
        ids = f"zone{'' if len(one.zones) == 1 else 's'} {'+'.join(map(str, one.zones))}" if one.zones else "any zone"
        parts.append(f"{name} requests {_zone_amounts(one.request)}, {ids}")
    for zone, before in given.before.items():
        both = (
            (name, _zone_amount(name, free), _zone_amount(name, given.after[zone][name]))
            for name, free in before.items()
        )
        parts.append(f"zone {zone}: {', '.join(f'{name} {free} free, {after} with it' for name, free, after in both)}")
    if given.unaligned:
        parts.append(f"would not be aligned: {', '.join(_of_lack(lack, lack.free) for lack in given.unaligned)}")
    if given.moved:
        moved = ", ".join(given.moved)
        parts.append(f"the kubelet rejects {moved} if it reuses an init container's CPUs, which are in other zones")
    if given.not_charged:
        parts.append(f"overhead {_zone_amounts(given.not_charged)} is counted in no zone")
    return "; ".join([*parts, *_reserved(given.reservations)])


def _reserved(reservations: Sequence[Reservation]) -> Iterator[str]:
    if reservations:
        names = [f"{one.name} ({_zone_amounts(one.reserved)})" for one in reservations[:RESERVED_NAMED]]
        more = len(reservations) - len(names)
        yield f"reserved for {', '.join(names)}{f' and {more} more' if more else ''} until its zones show them"


def _of_lack(lack: Lack, before: int) -> str:
    asks = f"pod requests {lack.resource} {_zone_amount(lack.resource, lack.asked)}"
    if lack.best_zone is None:
        return f"{asks}, but no zone has this resource"
    free = f"zone {lack.best_zone} has {_zone_amount(lack.resource, lack.free)} free"
    return f"{asks}, {free}" + (f" of {_zone_amount(lack.resource, before)}" if before != lack.free else "")


def _zone_amounts(amounts: Amounts) -> str:
    return " ".join(f"{name} {_zone_amount(name, amount)}" for name, amount in sorted(amounts.items())) or "nothing"


def _zone_amount(resource: str, amount: int) -> str:
    """In Kubernetes' notation; devices as a count."""
    if resource == CPU:
        return f"{amount}m"
    return f"{amount // _MIB}Mi" if is_memory(resource) else str(amount)


WORDS = {
    "stale": "its agent is silent",
    "frozen": "its figures are not fresh",
    "mem_over_line": "best-effort pods are being evicted from it, because memory is short",
    "evicting": "evicted pods are still terminating on it",
    STALE: f"its agent has not published NUMA zones for {ZONES_STALE_S:.0f} s",
    UNREAD: "its NUMA zones, or the allocations of pods in them, cannot be read",
}
"""For reasons that are not user-facing terms."""
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
    return one.reason, one.own, limit, one.text


def _text(pod: Asking, refused: Mapping[str, Refusal]) -> str:
    alike = list(refused.values())
    first = alike[0]
    if first.text:
        return f"{first.reason}: {first.text}"
    checks = [one.check for one in alike if one.check is not None]
    if checks:
        return f"{first.reason}: {_over(pod, first, checks)}"
    if first.short is not None:
        most = max(one.short.left for one in alike if one.short is not None)
        resource = first.short.resource
        asks, left = _amount(resource, first.short.wanted), _amount(resource, most)
        return f"{first.reason}: pod requests {asks}, but only {left} is free"
    cores = [one.cores for one in alike if one.cores is not None]
    if cores:
        return f"{first.reason}: {max(cores, key=lambda one: one.free_count).text}"
    lacking = {node: one.zones for node, one in refused.items() if one.zones is not None and one.zones.lacks}
    if lacking:
        return f"{first.reason}: {lacking_zones(lacking)}"
    return WORDS.get(first.reason, first.reason)


def _over(pod: Asking, first: Refusal, checks: Sequence[Check]) -> str:
    limit, counts = checks[0].limit, checks[0].pod
    name = RESOURCES[limit.resource].name
    where = f"the node's annotation {ANNOTATION}" if first.own else key_of("placement")
    used = sorted(one.limit.existing * 100 // one.limit.allocatable for one in checks)
    uses = str(used[0]) if used[0] == used[-1] else f"{used[0]}-{used[-1]}"
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
        f"over {where} {first.key}.{name} {limit.threshold_pct}{PERCENT}: node uses {uses}{PERCENT} "
        f"with the pods assigned to it, pod counts {_amount(limit.resource, counts)} ({share})"
    )


def _amount(resource: int, amount: int) -> str:
    """In Kubernetes' notation."""
    return f"{amount}m" if RESOURCES[resource].unit == "milli" else f"{-(-amount // _MIB)}Mi"
