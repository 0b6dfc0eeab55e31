"""Computes the prod-reclaimable resources of a node from its forecast.

It differs from the reference on purpose. The age of a pod is the time covered by its samples. A model with too few
samples is ignored. The peak of a class that never had a pod is 0. Pods that have ended are in no sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.allocatable import Prediction
from slacktide.schemas.forecast import FORECAST_STALE_MS, SYSTEM, NodePeaks, Peaks
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import Use
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.known_pods import KnownPod, known
from slacktide.streams.decisions.prediction import prod_reclaimable as rule
from slacktide.streams.decisions.prediction.prod_reclaimable import PredictedPod, ProdReclaimable, prod_reclaimable

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
    def of(cls, peaks: NodePeaks) -> HeldForecast:
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
            peaks = msgspec.msgpack.decode(self._packed, type=NodePeaks)
            found = mid_forecast(peaks, there, facts, colocation_on(policy, facts), state)
        self._figured = asked, there, found
        return found


def _same(one: object, other: object) -> bool:
    return one is other


def production(pods: Sequence[Pod]) -> Sequence[KnownPod]:
    """Return the production pods that have not ended. A node's lists share the objects."""
    return [one for one in known(pods).each() if one.kind.there and one.kind.priority_class == PROD]


def mid_forecast(
    peaks: NodePeaks, there: Sequence[KnownPod], facts: NodeFacts, colocation: Colocation, state: str = ""
) -> MidForecast:
    """Compute the prod-reclaimable resources from a forecast.

    ``there``: production pods that have not ended. ``state``: why the forecast is ignored; "": it is valid.
    """
    if state:
        prediction = Prediction(state=state, observed_ms=peaks.observed_ms)
        return MidForecast(revision=peaks.revision, prediction=prediction)
    cold_s = colocation.mid_cold_start_s
    by_uid = {one.uid: one.peaks for one in peaks.pods}
    pods = [_predicted(one, by_uid.get(one.name.uid), peaks) for one in there]
    young = sum(not is_warm(pod.age_s, cold_s, of_pod=True) for pod in pods)
    found = prod_reclaimable(
        pods,
        _node_peaks(peaks, cold_s, prod=bool(there)),
        allocatable=facts.allocatable,
        cold_start_s=cold_s - 1,  # the rule counts a pod of exactly this age as young
        safety_margin_pct=colocation.mid_safety_margin_pct,
    )
    cold = found.reclaimable is None or (there and young == len(there))
    return MidForecast(
        revision=peaks.revision,
        prediction=_prediction(found, COLD if cold else "", peaks.observed_ms, young),
        prod_reclaimable=found.reclaimable,
        prod_peak=found.peak,
    )


def _predicted(pod: KnownPod, its: Peaks | None, of: NodePeaks) -> PredictedPod:
    """Convert a pod. Its age is the time covered by its samples; 0 without a model."""
    kind = pod.kind
    return PredictedPod(
        uid=pod.name.uid,
        request=Use(cpu_milli=kind.cpu_milli, mem_bytes=kind.mem_bytes),
        of_prod=True,
        over=False,
        alone=bool(kind.exclusive_cpus),
        age_s=0 if its is None else of.sampled_s(its),
        peak=_use(its),
    )


def _node_peaks(peaks: NodePeaks, cold_start_s: int, *, prod: bool) -> rule.NodePeaks:
    """Return the peaks of warm models. Without one, production's is unknown if it has pods, else 0."""
    warm = {
        name: _use(one)
        for name, one in peaks.items.items()
        if is_warm(peaks.sampled_s(one), cold_start_s, of_pod=False)
    }
    return rule.NodePeaks(system=warm.get(SYSTEM), prod=warm.get(PROD, None if prod else NOTHING), unclassed=NOTHING)


def _prediction(found: ProdReclaimable, state: str, observed_ms: int, young: int) -> Prediction:
    cpu, mem = found.because
    return Prediction(
        state=state,
        observed_ms=observed_ms,
        young=young,
        cpu_bound=cpu.bound,
        mem_bound=mem.bound,
        cpu_terms=cpu.terms,
        mem_terms=mem.terms,
    )


def _use(peaks: Peaks | None) -> Use | None:
    return None if peaks is None else Use(cpu_milli=peaks.cpu_p95_milli, mem_bytes=peaks.mem_p98_bytes)
