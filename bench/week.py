"""A generated week of ten nodes, judged against who knows the future: mid by prediction, a static share, a percentile.

Use has the shapes that published traces of services have: a day's wave, quieter weekends, bursts of minutes, and a slow
growth. Each pod's differ. There is a sample every ten seconds; a minute teaches its 90th percentile, as in the agent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from slacktide.deploy.runtime.text import show
from slacktide.schemas.forecast import SYSTEM, NodePeaks, Peaks, PodPeaks
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.prediction import peak_models
from slacktide.streams.decisions.prediction.mid_forecast import mid_forecast, production
from slacktide.streams.decisions.prediction.peak_models import PeakModel, PeakModels, PeakUse

Floats = NDArray[np.float64]
NODES, PODS, DAYS = 10, 4, 7
SAMPLE_S = 10
MINUTE = 60 // SAMPLE_S
DAY = 1_440 * MINUTE
STEP = 10 * MINUTE
"""Samples from a forecast to the next."""
CORES = 16
GIB = 2**30
HORIZON = 60 * MINUTE
"""Samples for which what is sold must not be wanted back: a mid pod of an hour."""

COMPARED = (("", HORIZON, 10), ("at_once_", STEP, 10), ("careful_", HORIZON, 15), ("careful_at_once_", STEP, 15))
"""For how long pods hold what they were sold, and the safety margin."""


@dataclass(frozen=True, eq=False)
class Node:
    """A week of one node, in millicores by sample."""

    requests: Sequence[int]
    use: Floats
    """[pods, samples]"""
    system: Floats

    @property
    def asked(self) -> int:
        """What production pods requested together."""
        return sum(self.requests)

    @cached_property
    def together(self) -> Floats:
        """What production pods use together, and the system: it takes from what they requested."""
        found: Floats = self.use.sum(0) + self.system
        return found


def node(seed: int) -> Node:
    """One node's week; the same for the same seed."""
    dice = np.random.default_rng(seed)
    minutes = np.arange(DAYS * 1_440)
    weekend = np.where(minutes // 1_440 >= 5, 0.7, 1.0)

    def sampled(by_minute: Floats, spread: float) -> Floats:
        samples = np.repeat(by_minute, MINUTE)
        return samples * np.exp(spread * dice.standard_normal(len(samples)))

    uses, requests = [], []
    for _ in range(PODS):
        request = int(dice.choice([1_000, 2_000, 3_000, 4_000]))
        mean, swing = request * dice.uniform(0.15, 0.35), dice.uniform(0.3, 0.8)
        wave = 1 + swing * np.sin(2 * np.pi * (minutes / 1_440 - dice.uniform(0.2, 0.6)))
        noise = np.exp(0.15 * dice.standard_normal(len(minutes)))
        bursts = np.zeros(len(minutes))
        for begin in dice.integers(0, len(minutes) - 10, DAYS * 3):
            bursts[begin : begin + int(dice.integers(2, 10))] = mean * dice.uniform(0.5, 1.5)
        growth = 1 + 0.05 * minutes / len(minutes)
        uses.append(np.minimum(sampled(mean * wave * weekend * noise * growth + bursts, 0.1), request))
        requests.append(request)
    system = sampled(300 * np.exp(0.1 * dice.standard_normal(len(minutes))), 0.1)
    return Node(requests, np.array(uses), system)


def _peaks_of_minutes(samples: Floats) -> Floats:
    """The nearest-rank 90th percentile, along the last axis."""
    by_minute = np.sort(samples.reshape(*samples.shape[:-1], -1, MINUTE))
    found: Floats = by_minute[..., ceil(0.9 * MINUTE) - 1]
    return found


PODS_OF = [Pod(uid=f"p{at}", namespace="n", name=f"p{at}", kube_qos="Burstable") for at in range(PODS)]


def forecasts(of: Node) -> list[NodePeaks]:
    """What the agent would publish every ten minutes."""
    models, found = PeakModels(), []
    whole = _peaks_of_minutes(of.together) / 1_000
    for minute, column in enumerate(_peaks_of_minutes(of.use).T / 1_000):
        uses = [
            (pod, PeakUse(cpu_cores=use, mem_bytes=GIB / 2)) for pod, use in zip(PODS_OF, column.tolist(), strict=True)
        ]
        at_ms = minute * 60_000
        models.train_known(uses, PeakUse(cpu_cores=float(whole[minute]), mem_bytes=4 * GIB), at_ms=at_ms)
        if (minute + 1) * MINUTE % STEP == 0:
            peaks = NodePeaks(
                node="n",
                boot_id="b",
                seq=minute,
                observed_ms=at_ms,
                interval_ms=60_000,
                pods=[PodPeaks(uid=pod.uid, peaks=_peaks(models.models[pod.uid])) for pod in PODS_OF],
                items={
                    SYSTEM: _peaks(models.models[peak_models.SYSTEM]),
                    "koord-prod": _peaks(models.models[peak_models.CLASSES["koord-prod"]]),
                },
            )
            found.append(peaks)
    return found


def predicted(of: Node, published: Sequence[NodePeaks], margin_pct: int = 10) -> Floats:
    """Mid CPU by the product's own rules, after each forecast: [samples / STEP]."""
    size = Resources(cpu_milli=1_000 * CORES, mem_bytes=64 * GIB)
    facts = NodeFacts(name="n", capacity=size, allocatable=size)
    pods = production(
        [
            structs.replace(pod, requests=Resources(cpu_milli=request, mem_bytes=GIB))
            for pod, request in zip(PODS_OF, of.requests, strict=True)
        ]
    )
    colocation = Colocation(enable=True, mid_safety_margin_pct=margin_pct)
    return np.array([mid_forecast(one, pods, facts, colocation).reclaimable.cpu_milli for one in published], float)


def _peaks(model: PeakModel) -> Peaks:
    return Peaks(
        cpu_p95_milli=model.cpu.peak(0.95).amount,
        mem_p98_bytes=model.mem.peak(0.98).amount,
        samples=model.samples,
        since_ms=model.since_ms,
    )


def batch(of: Node) -> Floats:
    """Batch CPU at the same times: what the threshold leaves of the average use of five minutes."""
    span = 5 * MINUTE
    used = np.convolve(of.together, np.ones(span) / span)[: len(of.system)]
    return np.maximum(0, 1_000 * CORES * 0.6 - used)[STEP - 1 :: STEP]


def moved(sold: Floats) -> float:
    """The daily sum of changes."""
    return float(np.abs(np.diff(sold)).sum() / (len(sold) * STEP / DAY))


@dataclass(frozen=True)
class Judged:
    """What came of selling, of all nodes together."""

    violated_s: float
    """Seconds in which production pods wanted what was sold."""
    share: float
    """Of what who knows the future would have sold: what was sold."""


@cache
def clairvoyant(of: Node, horizon: int) -> Floats:
    """What could be sold at each step for so long without being wanted back."""
    ahead = np.lib.stride_tricks.sliding_window_view(np.pad(of.together, (0, horizon), mode="edge"), horizon + 1)
    return np.maximum(0, of.asked - ahead[STEP - 1 :: STEP].max(1))


def held(sold: Floats, horizon: int) -> Floats:
    """What pods hold that run for so many samples: the most that was sold since the oldest of them began."""
    steps = max(1, horizon // STEP)
    return np.lib.stride_tricks.sliding_window_view(np.pad(sold, (steps - 1, 0), mode="edge"), steps).max(1)


def judged(nodes: Sequence[Node], sold: Sequence[Floats], horizon: int = HORIZON) -> Judged:
    """Judge what was sold from the second day on; the first is the cold start."""
    first = DAY // STEP
    violated = offered = best = 0.0
    for one, its in zip(nodes, sold, strict=True):
        samples = np.repeat(held(its, horizon), STEP)[: len(one.together) - STEP]
        use = one.together[STEP : STEP + len(samples)]
        violated += SAMPLE_S * float((use + samples > one.asked)[DAY:].sum())
        offered += float(its[first:].sum())
        best += float(clairvoyant(one, horizon)[first:].sum())
    return Judged(violated, offered / best)


def static(of: Node, share: float) -> Floats:
    """A fixed share of what was requested."""
    return np.full(len(of.system) // STEP, of.asked * share)


@cache
def _lately(of: Node) -> Floats:
    """The 95th percentile of the last half hour, at each step."""
    span = 30 * MINUTE
    window = np.lib.stride_tricks.sliding_window_view(np.pad(of.together, (span - 1, 0), mode="edge"), span)
    return np.percentile(window[STEP - 1 :: STEP], 95, axis=1)


def windowed(of: Node, margin: float) -> Floats:
    """What that percentile leaves, raised by a margin."""
    return np.maximum(0, of.asked - _lately(of) * margin)


def at_equal_violations(
    nodes: Sequence[Node], rule: Callable[[Node, float], Floats], low: float, high: float, most_s: float, horizon: int
) -> Judged:
    """The most that a rule sells with no more violations; at ``low`` it sells most of all."""
    for _ in range(30):
        middle = (low + high) / 2
        if judged(nodes, [rule(one, middle) for one in nodes], horizon).violated_s > most_s:
            low = middle
        else:
            high = middle
    return judged(nodes, [rule(one, high) for one in nodes], horizon)


def report() -> dict[str, float]:
    """All figures."""
    nodes = [node(seed) for seed in range(NODES)]
    published = [forecasts(one) for one in nodes]
    figures = {}
    for name, horizon, margin_pct in COMPARED:
        sold = [predicted(one, its, margin_pct) for one, its in zip(nodes, published, strict=True)]
        mine = judged(nodes, sold, horizon)
        others = {
            "static_": at_equal_violations(nodes, static, 1.0, 0.0, mine.violated_s, horizon),
            "window_": at_equal_violations(nodes, windowed, 0.5, 5.0, mine.violated_s, horizon),
        }
        for which, found in {"": mine, **others}.items():
            figures |= {f"{name}{which}violated_s": found.violated_s, f"{name}{which}share": found.share}
    sold = [predicted(one, its) for one, its in zip(nodes, published, strict=True)]
    settled = [its[DAY // STEP :] for its in sold]
    return {
        "mid_moved_milli": sum(map(moved, settled)) / NODES,
        "batch_moved_milli": sum(moved(batch(one)[DAY // STEP :]) for one in nodes) / NODES,
        **figures,
        "withdrawn_a_day": max(float((np.diff(its) < -0.05 * 1_000 * CORES).sum()) / (DAYS - 1) for its in settled),
    }


if __name__ == "__main__":
    for name, figure in report().items():
        show(f"{name:25} {figure:12,.3f}")
