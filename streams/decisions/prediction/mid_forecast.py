"""Computes the prod-reclaimable resources of a node from its forecast, and the peak usage of production pods.

The reclaimable part of production requests is the lower one of two results, from pod peaks and from node peaks. A peak
is raised by the safety margin: the double product truncated, with the percentage taken first, as in the reference. The
idle part of exclusive CPUs counts as peak. The reference reclaims it. Reading: koordinator a7a1b76b,
pkg/koordlet/prediction/peak_predictor.go.

``mid_forecast`` differs from the reference on purpose. The age of a pod is the time covered by its samples. A model
with too few samples is ignored. The peak of a class that never had a pod is 0. Pods that have ended are in no sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter

import msgspec

from slacktide.schemas.allocatable import Prediction
from slacktide.schemas.forecast import FORECAST_STALE_MS, SYSTEM, Peaks
from slacktide.schemas.forecast import NodePeaks as NodeForecast
from slacktide.schemas.inventory import ENDED_PHASES, NodeFacts, Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Use
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because, in_unit
from slacktide.streams.decisions.known_pods import KnownPod, known

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
    found, seen = _Sorted(), set[str]()
    for each in pods:
        if not each.of_prod:
            continue
        if each.uid in seen:
            found.refused.append(each.uid)
            continue
        seen.add(each.uid)
        if each.age_s <= cold_start_s:  # unknown even if it has ended
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
    by_pods_milli, by_node_milli, pod_peak_milli, node_peak_milli, because_cpu = _figured(
        "cpu_milli", found, node, allocatable, safety_margin_pct
    )
    by_pods_bytes, by_node_bytes, pod_peak_bytes, node_peak_bytes, because_mem = _figured(
        "mem_bytes", found, node, allocatable, safety_margin_pct
    )
    by_pods, by_node = _both(by_pods_milli, by_pods_bytes), _both(by_node_milli, by_node_bytes)
    pod_peak = Use(cpu_milli=pod_peak_milli, mem_bytes=pod_peak_bytes)
    node_peak = _both(node_peak_milli, node_peak_bytes)
    return ProdReclaimable(
        by_pods=by_pods,
        by_node=by_node,
        reclaimable=_each(min, by_pods, by_node),
        pod_peak=pod_peak,
        node_peak=node_peak,
        peak=_each(max, pod_peak, node_peak),
        refused=tuple(found.refused),
        because=(because_cpu, because_mem),
    )


def _figured(
    field: str, found: _Sorted, node: NodePeaks, allocatable: Resources | None, margin_pct: int
) -> tuple[int | None, int | None, int, int | None, Because]:
    """Return a resource's reclaimable amounts by pods and by node, their peaks, and the arithmetic.

    ``field``: of ``Use`` and ``Resources``.
    """
    factor, of = float(100 + margin_pct) / 100, attrgetter(field)
    predicted = [int(peak * factor) for peak in map(of, found.peaks)]
    unknown, asked = sum(map(of, found.unknown)), sum(map(of, found.asking))
    left = [
        request - peak if request > peak else 0
        for request, peak in zip(map(of, found.requests), predicted, strict=True)
    ]
    idle = sum(compress(left, found.alone)) if field == "cpu_milli" else 0
    peaks, free = sum(predicted) + idle, sum(left) - idle
    parts = [None if part is None else of(part) for part in (node.system, node.prod, node.unclassed)]
    whole = [part for part in parts if part is not None]
    node_peak = int(sum(whole) * factor) + idle if len(whole) == len(parts) else None
    node_free = None if node_peak is None else max(0, asked - node_peak)
    given: int | None = None if allocatable is None else of(allocatable) or 0
    by_pods, by_node = _left(given, peaks, free), _left(given, node_peak, node_free)
    reclaimable = None if by_pods is None or by_node is None else min(by_pods, by_node)
    amounts = (given, unknown, peaks, free, by_pods, asked, *parts, node_peak, node_free, by_node, reclaimable)
    names = in_unit("milli" if field == "cpu_milli" else "bytes", *_TERMS)
    terms: Terms = {"safety_margin_pct": margin_pct}
    terms |= {term: amount for term, amount in zip(names, amounts, strict=True) if amount is not None}
    if reclaimable is None or node_free is None:
        bound = "no_forecast"
    elif reclaimable < min(free, node_free):
        bound = "allocatable"
    else:
        bound = "pods" if free < node_free else "node"
    because = Because(of=field.replace("mem_", "memory_"), bound=bound, terms=terms)
    return by_pods, by_node, peaks + unknown, node_peak, because


def _left(allocatable: int | None, peak: int | None, free: int | None) -> int | None:
    """Return the free amount, but at most allocatable minus the peak."""
    if allocatable is None or peak is None or free is None:
        return None
    return min(max(0, allocatable - peak), free)


def _both(cpu_milli: int | None, mem_bytes: int | None) -> Use | None:
    return None if cpu_milli is None or mem_bytes is None else Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes)


def _each(choose: Callable[[int, int], int], one: Use | None, other: Use | None) -> Use | None:
    if one is None or other is None:
        return None
    return Use(cpu_milli=choose(one.cpu_milli, other.cpu_milli), mem_bytes=choose(one.mem_bytes, other.mem_bytes))


PROD = "koord-prod"
MODEL_S_MIN = 30 * 60
"""Time that a model of a class or the system must cover, unless the cold start is shorter."""
COLD, STALE, OTHER_BOOT = "cold start", "stale forecast", "forecast of another boot"
NOTHING = Use(cpu_milli=0, mem_bytes=0)


class MidForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The prod-reclaimable resources of a node, and the forecast behind them."""

    revision: str
    """Revision of the forecast; "": there is none."""
    prediction: Prediction | None = None
    prod_reclaimable: Use | None = None
    """None: there is no prediction, and mid pods get none of it."""
    prod_peak: Use | None = None

    @property
    def reclaimable(self) -> Use:
        """The prod-reclaimable resources; 0 without a prediction."""
        return self.prod_reclaimable or NOTHING


NO_FORECAST = MidForecast(revision="")


def is_warm(sampled_s: int, cold_start_s: int, *, of_pod: bool) -> bool:
    """Return whether a model covers the cold start. Half an hour is enough unless it is of a pod."""
    return sampled_s >= (cold_start_s if of_pod else min(MODEL_S_MIN, cold_start_s))


@dataclass(slots=True, eq=False)
class HeldForecast:
    """A node's newest forecast, packed. Caches the result for a pod list, facts and a policy."""

    boot_id: str
    seq: int
    observed_ms: int
    _packed: bytes
    _figured: tuple[tuple[object, ...], Sequence[KnownPod], MidForecast] | None = field(default=None, init=False)

    @classmethod
    def of(cls, peaks: NodeForecast) -> HeldForecast:
        """Pack a record."""
        return cls(peaks.boot_id, peaks.seq, peaks.observed_ms, msgspec.msgpack.encode(peaks))

    @property
    def order(self) -> tuple[str, int]:
        """Sort key; the higher one is newer."""
        return self.boot_id, self.seq

    def on(self, pods: Sequence[Pod], facts: NodeFacts, policy: Policy, *, boot_id: str, at_ms: int) -> MidForecast:
        """Return the mid forecast for a sample of ``boot_id`` at ``at_ms``. Compute it if an input changed."""
        state = OTHER_BOOT if boot_id != self.boot_id else STALE if at_ms - self.observed_ms > FORECAST_STALE_MS else ""
        had, asked = self._figured, (pods, facts, policy, state)
        if had is not None and all(map(_same, had[0], asked)):
            return had[2]
        there = production(pods)
        if had is not None and all(map(_same, had[0][1:], asked[1:])) and had[1] == there:
            found = had[2]
        else:
            peaks = msgspec.msgpack.decode(self._packed, type=NodeForecast)
            found = mid_forecast(peaks, there, facts, colocation_on(policy, facts), state)
        self._figured = asked, there, found
        return found


def _same(one: object, other: object) -> bool:
    return one is other


def production(pods: Sequence[Pod]) -> Sequence[KnownPod]:
    """Return the production pods that have not ended. A node's lists share the objects."""
    return [one for one in known(pods).each() if one.kind.there and one.kind.priority_class == PROD]


def mid_forecast(
    peaks: NodeForecast, there: Sequence[KnownPod], facts: NodeFacts, colocation: Colocation, state: str = ""
) -> MidForecast:
    """Compute the prod-reclaimable resources from a forecast.

    ``there``: production pods that have not ended. ``state``: why the forecast is ignored; "": it is valid.
    """
    if state:
        prediction = Prediction(state=state, observed_ms=peaks.observed_ms)
        return MidForecast(revision=peaks.revision, prediction=prediction)
    cold_s = colocation.mid_cold_start_s
    by_uid = {one.uid: one.peaks for one in peaks.pods}
    pods = []
    for one in there:
        its, kind = by_uid.get(one.name.uid), one.kind
        pod = PredictedPod(
            uid=one.name.uid,
            request=Use(cpu_milli=kind.cpu_milli, mem_bytes=kind.mem_bytes),
            of_prod=True,
            over=False,
            alone=bool(kind.exclusive_cpus),
            age_s=0 if its is None else peaks.sampled_s(its),  # the time covered by its samples
            peak=None if its is None else _use(its),
        )
        pods.append(pod)
    young = sum(not is_warm(pod.age_s, cold_s, of_pod=True) for pod in pods)
    items = peaks.items.items()
    warm = {name: _use(one) for name, one in items if is_warm(peaks.sampled_s(one), cold_s, of_pod=False)}
    # Without a warm model, the peak of production is unknown if it has pods, else 0.
    prod = warm.get(PROD, None if there else NOTHING)
    found = prod_reclaimable(
        pods,
        NodePeaks(system=warm.get(SYSTEM), prod=prod, unclassed=NOTHING),
        allocatable=facts.allocatable,
        cold_start_s=cold_s - 1,  # the rule counts a pod of exactly this age as young
        safety_margin_pct=colocation.mid_safety_margin_pct,
    )
    cold = found.reclaimable is None or (there and young == len(there))
    cpu, mem = found.because
    prediction = Prediction(
        state=COLD if cold else "",
        observed_ms=peaks.observed_ms,
        young=young,
        cpu_bound=cpu.bound,
        mem_bound=mem.bound,
        cpu_terms=cpu.terms,
        mem_terms=mem.terms,
    )
    return MidForecast(
        revision=peaks.revision,
        prediction=prediction,
        prod_reclaimable=found.reclaimable,
        prod_peak=found.peak,
    )


def _use(peaks: Peaks) -> Use:
    return Use(cpu_milli=peaks.cpu_p95_milli, mem_bytes=peaks.mem_p98_bytes)
