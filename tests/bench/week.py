"""A generated week of ten nodes, judged against who knows the future: mid by prediction, a static share, a percentile.

Use has the shapes that published traces of services have: a day's wave, quieter weekends, bursts of minutes, and a slow
growth. Each pod's differ. A minute has one figure, which is what the agent's trainer learns of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from slacktide.schemas.forecast import SYSTEM, NodePeaks, Peaks, PodPeaks
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions import peak_models
from slacktide.streams.decisions.mid_forecast import mid_forecast
from slacktide.streams.decisions.peak_models import PeakModel, PeakModels, PeakUse

Floats = NDArray[np.float64]
NODES, PODS, DAYS = 10, 4, 7
DAY = 1_440
STEP = 10
"""Minutes from a forecast to the next."""
CORES = 16
GIB = 2**30
HORIZON = 60
"""Minutes for which what is sold must not be wanted back: a mid pod of an hour."""
COLOCATION = Colocation(enable=True)


@dataclass(frozen=True)
class Node:
    """A week of one node, in millicores by minute."""

    requests: Sequence[int]
    use: Floats
    """[pods, minutes]"""
    system: Floats

    @property
    def asked(self) -> int:
        """What production pods requested together."""
        return sum(self.requests)

    @property
    def together(self) -> Floats:
        """What production pods use together."""
        return self.use.sum(0)


def node(seed: int) -> Node:
    """One node's week; the same for the same seed."""
    dice = np.random.default_rng(seed)
    minutes = np.arange(DAYS * DAY)
    weekend = np.where(minutes // DAY >= 5, 0.7, 1.0)
    uses, requests = [], []
    for _ in range(PODS):
        request = int(dice.choice([1_000, 2_000, 3_000, 4_000]))
        mean, swing = request * dice.uniform(0.15, 0.35), dice.uniform(0.3, 0.8)
        wave = 1 + swing * np.sin(2 * np.pi * (minutes / DAY - dice.uniform(0.2, 0.6)))
        noise = np.exp(0.15 * dice.standard_normal(len(minutes)))
        bursts = np.zeros(len(minutes))
        for begin in dice.integers(0, len(minutes) - 10, DAYS * 3):
            bursts[begin : begin + int(dice.integers(2, 10))] = mean * dice.uniform(0.5, 1.5)
        growth = 1 + 0.05 * minutes / len(minutes)
        uses.append(np.minimum(mean * wave * weekend * noise * growth + bursts, request))
        requests.append(request)
    system = 300 * np.exp(0.1 * dice.standard_normal(len(minutes)))
    return Node(requests, np.array(uses), system)


def predicted(of: Node) -> Floats:
    """Mid CPU by the product's own rules, after each forecast: [minutes / STEP]."""
    facts = NodeFacts(
        name="n",
        capacity=Resources(cpu_milli=1_000 * CORES, mem_bytes=64 * GIB),
        allocatable=Resources(cpu_milli=1_000 * CORES, mem_bytes=64 * GIB),
    )
    pods = [
        Pod(uid=f"p{at}", namespace="n", name=f"p{at}", kube_qos="Burstable",
            requests=Resources(cpu_milli=request, mem_bytes=GIB))
        for at, request in enumerate(of.requests)
    ]  # fmt: skip
    models, found = PeakModels(), []
    whole = (of.together + of.system) / 1_000
    for minute, column in enumerate(of.use.T / 1_000):
        uses = [
            (pod, PeakUse(cpu_cores=use, mem_bytes=GIB / 2)) for pod, use in zip(pods, column.tolist(), strict=True)
        ]
        at_ms = minute * 60_000
        models.train_known(uses, PeakUse(cpu_cores=float(whole[minute]), mem_bytes=4 * GIB), at_ms=at_ms)
        if minute % STEP == STEP - 1:
            peaks = NodePeaks(
                node="n",
                boot_id="b",
                seq=minute,
                observed_ms=at_ms,
                interval_ms=60_000,
                pods=[PodPeaks(uid=pod.uid, peaks=_peaks(models.models[pod.uid])) for pod in pods],
                items={
                    SYSTEM: _peaks(models.models[peak_models.SYSTEM]),
                    "koord-prod": _peaks(models.models[peak_models.CLASSES["koord-prod"]]),
                },
            )
            found.append(mid_forecast(peaks, pods, facts, COLOCATION).reclaimable.cpu_milli)
    return np.array(found, float)


def _peaks(model: PeakModel) -> Peaks:
    return Peaks(
        cpu_p95_milli=model.cpu.peak(0.95).amount,
        mem_p98_bytes=model.mem.peak(0.98).amount,
        samples=model.samples,
        since_ms=model.since_ms,
    )


def batch(of: Node) -> Floats:
    """Batch CPU at the same times: what the threshold leaves of the average use of five minutes."""
    used = np.convolve(of.together + of.system, np.ones(5) / 5)[: len(of.system)]
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


def clairvoyant(of: Node) -> Floats:
    """What could be sold at each step for an hour without being wanted back."""
    ahead = np.lib.stride_tricks.sliding_window_view(np.pad(of.together, (0, HORIZON), mode="edge"), HORIZON + 1)
    return np.maximum(0, of.asked - ahead.max(1))[STEP - 1 :: STEP]


def held(sold: Floats, horizon: int) -> Floats:
    """What pods hold that run for so many minutes: the most that was sold since the oldest of them began."""
    steps = max(1, horizon // STEP)
    return np.lib.stride_tricks.sliding_window_view(np.pad(sold, (steps - 1, 0), mode="edge"), steps).max(1)


def judged(nodes: Sequence[Node], sold: Sequence[Floats], horizon: int = HORIZON) -> Judged:
    """Judge what was sold from the second day on; the first is the cold start."""
    first = DAY // STEP
    violated = offered = best = 0.0
    for one, its in zip(nodes, sold, strict=True):
        minutes = np.repeat(held(its, horizon), STEP)[: len(one.together) - STEP]
        use = one.together[STEP : STEP + len(minutes)]
        violated += 60 * float((use + minutes > one.asked)[DAY:].sum())
        offered += float(its[first:].sum())
        best += float(clairvoyant(one)[first:].sum())
    return Judged(violated, offered / best)


def static(of: Node, share: float) -> Floats:
    """A fixed share of what was requested."""
    return np.full(len(of.system) // STEP, of.asked * share)


def windowed(of: Node, margin: float) -> Floats:
    """What the 95th percentile of the last half hour leaves, raised by a margin."""
    window = np.lib.stride_tricks.sliding_window_view(np.pad(of.together, (29, 0), mode="edge"), 30)
    return np.maximum(0, of.asked - np.percentile(window, 95, axis=1) * margin)[STEP - 1 :: STEP]


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
    sold = [predicted(one) for one in nodes]
    figures = {}
    for name, horizon in (("", HORIZON), ("at_once_", STEP)):
        mine = judged(nodes, sold, horizon)
        others = {
            "static_": at_equal_violations(nodes, static, 1.0, 0.0, mine.violated_s, horizon),
            "window_": at_equal_violations(nodes, windowed, 0.5, 5.0, mine.violated_s, horizon),
        }
        for which, its in {"": mine, **others}.items():
            figures |= {f"{name}{which}violated_s": its.violated_s, f"{name}{which}share": its.share}
    settled = [its[DAY // STEP :] for its in sold]
    return {
        "mid_moved_milli": sum(map(moved, settled)) / NODES,
        "batch_moved_milli": sum(moved(batch(one)[DAY // STEP :]) for one in nodes) / NODES,
        **figures,
        "withdrawn_a_day": max(float((np.diff(its) < -0.05 * 1_000 * CORES).sum()) / (DAYS - 1) for its in settled),
    }


if __name__ == "__main__":
    for name, figure in report().items():
        click.echo(f"{name:25} {figure:12,.3f}")
