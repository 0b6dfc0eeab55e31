"""Predicts the reclaimable part of production requests, and the peak usage of production pods.

Reading: koordinator a7a1b76b, pkg/koordlet/prediction/peak_predictor.go. It computes the result from pod peaks and from
node peaks, and uses the lower one. A peak is raised by the safety margin: the double product truncated, with the
percentage taken first, as in the reference. The idle part of exclusive CPUs counts as peak. The reference reclaims it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter

import msgspec

from slacktide.schemas.inventory import ENDED_PHASES, Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Use
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because, in_unit

_TERMS = (
    "allocatable", "unknown_request", "pods_peak", "pods_free", "by_pods",
    "prod_request", "system_peak", "prod_peak", "unclassed_peak", "node_peak", "node_free", "by_node", "reclaimable",
)  # fmt: skip


class PredictedPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod with its predicted peak."""

    uid: str
    request: Use
    of_prod: bool
    """Its effective class is koord-prod."""
    over: bool
    """It has ended or is being deleted."""
    alone: bool
    """It has exclusive CPUs."""
    age_s: int
    """Since its creation, or covered by its samples."""
    peak: Use | None = None
    """95th percentile of CPU, 98th of memory; None: it has no model."""

    @classmethod
    def of(cls, pod: Pod, *, age_s: int, deleting: bool = False, peak: Use | None = None) -> PredictedPod:
        """Convert a pod."""
        return cls(
            uid=pod.uid,
            request=Use(cpu_milli=pod.requests.cpu_milli or 0, mem_bytes=pod.requests.mem_bytes or 0),
            of_prod=effective_priority_class(pod) == "koord-prod",
            over=deleting or pod.phase in ENDED_PHASES,
            alone=bool(pod.exclusive_cpus),
            age_s=age_s,
            peak=peak,
        )


class NodePeaks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The same percentiles for groups of the node's load; None: no model."""

    system: Use | None
    prod: Use | None
    unclassed: Use | None
    """Pods without a priority class."""


class ProdReclaimable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The prediction. None: no prediction is possible."""

    by_pods: Use | None
    """Reclaimable by pod peaks. None: the node's allocatable resources are unknown."""
    by_node: Use | None
    """Reclaimable by node peaks. None: as above, or one of the node's three models is missing."""
    reclaimable: Use | None
    """The lesser of both."""
    pod_peak: Use
    """Sum of pod peaks, and of the requests of pods that are too young or without a model."""
    node_peak: Use | None
    peak: Use | None
    """The larger of both."""
    refused: tuple[str, ...]
    """Uids of production pods past the cold start without a model, or listed twice, in list order."""
    because: tuple[Because, Because]
    """CPU, then memory. ``bound``: the lower of ``pods`` and ``node``; ``allocatable``; or ``no_forecast``."""


class _Sorted(msgspec.Struct, kw_only=True, gc=False):
    asking: list[Use] = []
    """Requests that count towards the node's request."""
    unknown: list[Use] = []
    """Requests that count as a peak."""
    requests: list[Use] = []
    """Of pods with a peak; ``peaks`` and ``alone`` are of the same pods."""
    peaks: list[Use] = []
    alone: list[bool] = []
    refused: list[str] = []


class _Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    by_pods: int | None
    by_node: int | None
    pod_peak: int
    node_peak: int | None
    because: Because


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    of: str
    terms: Sequence[str]
    """``_TERMS`` with its unit."""
    in_use: Callable[[Use], int]
    in_node: Callable[[Resources], int | None]


_CPU = _Resource(
    of="cpu_milli", terms=in_unit("milli", *_TERMS), in_use=attrgetter("cpu_milli"), in_node=attrgetter("cpu_milli")
)
_MEM = _Resource(
    of="memory_bytes", terms=in_unit("bytes", *_TERMS), in_use=attrgetter("mem_bytes"), in_node=attrgetter("mem_bytes")
)


def prod_reclaimable(
    pods: Sequence[PredictedPod],
    node: NodePeaks,
    *,
    allocatable: Resources | None,
    cold_start_s: int,
    safety_margin_pct: int,
) -> ProdReclaimable:
    """Compute the part of production requests that mid pods may request.

    ``pods`` have a usage, of any class. ``allocatable`` is that before amplification; None: unknown; an absent amount
    is 0. Pods of ``cold_start_s`` or younger are not predicted. ``safety_margin_pct`` is at least -100.
    """
    found = _sorted(pods, cold_start_s)
    cpu, mem = (_figured(each, found, node, allocatable, safety_margin_pct) for each in (_CPU, _MEM))
    by_pods, by_node = _use(cpu.by_pods, mem.by_pods), _use(cpu.by_node, mem.by_node)
    pod_peak, node_peak = Use(cpu_milli=cpu.pod_peak, mem_bytes=mem.pod_peak), _use(cpu.node_peak, mem.node_peak)
    return ProdReclaimable(
        by_pods=by_pods,
        by_node=by_node,
        reclaimable=_each(min, by_pods, by_node),
        pod_peak=pod_peak,
        node_peak=node_peak,
        peak=_each(max, pod_peak, node_peak),
        refused=tuple(found.refused),
        because=(cpu.because, mem.because),
    )


def _sorted(pods: Sequence[PredictedPod], cold_start_s: int) -> _Sorted:
    """Sort the pods. A young pod is unknown even if it has ended. Ended pods add nothing to the node's request."""
    found, seen = _Sorted(), set[str]()
    for each in pods:
        if not each.of_prod:
            continue
        if each.uid in seen:
            found.refused.append(each.uid)
            continue
        seen.add(each.uid)
        if each.age_s <= cold_start_s:
            found.unknown.append(each.request)
        elif each.peak is not None and not each.over:
            found.requests.append(each.request)
            found.peaks.append(each.peak)
            found.alone.append(each.alone)
        elif not each.over:
            found.unknown.append(each.request)
            found.refused.append(each.uid)
            continue
        if not each.over:
            found.asking.append(each.request)
    return found


def _figured(
    kind: _Resource, found: _Sorted, node: NodePeaks, allocatable: Resources | None, margin_pct: int
) -> _Figures:
    factor, of = float(100 + margin_pct) / 100, kind.in_use
    predicted = [int(peak * factor) for peak in map(of, found.peaks)]
    unknown, asked = sum(map(of, found.unknown)), sum(map(of, found.asking))
    left = [
        request - peak if request > peak else 0
        for request, peak in zip(map(of, found.requests), predicted, strict=True)
    ]
    idle = sum(compress(left, found.alone)) if kind is _CPU else 0
    peaks, free = sum(predicted) + idle, sum(left) - idle
    parts = [None if part is None else of(part) for part in (node.system, node.prod, node.unclassed)]
    whole = [part for part in parts if part is not None]
    node_peak = int(sum(whole) * factor) + idle if len(whole) == len(parts) else None
    node_free = None if node_peak is None else max(0, asked - node_peak)
    given = None if allocatable is None else kind.in_node(allocatable) or 0
    by_pods, by_node = _left(given, peaks, free), _left(given, node_peak, node_free)
    reclaimable = None if by_pods is None or by_node is None else min(by_pods, by_node)
    amounts = (given, unknown, peaks, free, by_pods, asked, *parts, node_peak, node_free, by_node, reclaimable)
    terms: Terms = {"safety_margin_pct": margin_pct}
    terms |= {term: amount for term, amount in zip(kind.terms, amounts, strict=True) if amount is not None}
    return _Figures(
        by_pods=by_pods,
        by_node=by_node,
        pod_peak=peaks + unknown,
        node_peak=node_peak,
        because=Because(of=kind.of, bound=_bound(reclaimable, free, node_free), terms=terms),
    )


def _left(allocatable: int | None, peak: int | None, free: int | None) -> int | None:
    """Return the free amount, but at most allocatable minus the peak."""
    if allocatable is None or peak is None or free is None:
        return None
    return min(max(0, allocatable - peak), free)


def _bound(left: int | None, pods_free: int, node_free: int | None) -> str:
    if left is None or node_free is None:
        return "no_forecast"
    if left < min(pods_free, node_free):
        return "allocatable"
    return "pods" if pods_free < node_free else "node"


def _use(cpu_milli: int | None, mem_bytes: int | None) -> Use | None:
    return None if cpu_milli is None or mem_bytes is None else Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes)


def _each(choose: Callable[[int, int], int], one: Use | None, other: Use | None) -> Use | None:
    if one is None or other is None:
        return None
    return Use(cpu_milli=choose(one.cpu_milli, other.cpu_milli), mem_bytes=choose(one.mem_bytes, other.mem_bytes))
