"""``slacktide calc peak_models``."""

from __future__ import annotations

from typing import Literal

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, GivenPod, Seconds
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.prediction.peak_histogram import PERCENTILES, Peak
from slacktide.streams.decisions.prediction.peak_models import PeakModel, PeakModels, PeakUse, SavedModel


class GivenPeakUse(Given, frozen=True, kw_only=True):
    """The usage of the last minute."""

    cpu_cores: Cores = 0.0
    memory_bytes: Amount = 0

    def use(self) -> PeakUse:
        """Convert to the rule's type."""
        return PeakUse(cpu_cores=self.cpu_cores, mem_bytes=self.memory_bytes)


class GivenUsedPod(GivenPod, frozen=True, kw_only=True):
    """A pod on the node, and its usage; null: none."""

    uid: str
    usage: GivenPeakUse | None = None


class Event(Given, frozen=True, kw_only=True):
    """An event of the models. Training reads pods and usage, a restart reads pods."""

    type: Literal["train", "gc", "checkpoint", "restart"]
    at_seconds: Seconds
    pods: list[GivenUsedPod] | None = None
    node_usage: GivenPeakUse | None = None


class Input(Given, frozen=True, kw_only=True):
    """Events in the order of time."""

    events: list[Event]


def calculate(given: Input) -> Calculated:
    """Train, save, restore and expire models of a node's peaks."""
    node = PeakModels()
    saved: dict[str, SavedModel] = {}
    after: list[dict[str, object]] = []
    for event in given.events:
        node, saved = _happen(node, saved, event)
        after.append({"synced": node.synced, "models": sorted(node.models), "saved": sorted(saved)})
    models: dict[str, object] = {}
    because: list[Because] = []
    for uid, model in sorted(node.models.items()):
        peaks = _peaks(model)
        percentiles = {name: peak.amount for name, peak in peaks.items()}
        models[uid] = {"last_updated_seconds": model.updated_ms // 1000, "percentiles": percentiles}
        because += [
            Because(of=f"models/{uid}/{name}", bound=each.bound, terms=each.terms) for name, each in peaks.items()
        ]
    return Calculated(output={"after_each_event": after, "models": models}, because=because)


def _happen(node: PeakModels, saved: dict[str, SavedModel], event: Event) -> tuple[PeakModels, dict[str, SavedModel]]:
    """Return the models and the saved models after an event."""
    at_ms, pods = event.at_seconds * 1000, event.pods or ()
    if event.type == "restart":
        node = PeakModels.restored(saved, {pod.uid for pod in pods})
        return node, {uid: each for uid, each in saved.items() if uid in node.models}
    if event.type == "gc":
        gone = node.expire(at_ms=at_ms)
        return node, {uid: each for uid, each in saved.items() if uid not in gone}
    if event.type == "checkpoint":
        return node, saved | node.save(at_ms=at_ms)
    used = [(pod, None if pod.usage is None else pod.usage.use()) for pod in pods]
    node.train(used, None if event.node_usage is None else event.node_usage.use(), at_ms=at_ms)
    return node, saved


def _peaks(model: PeakModel) -> dict[str, Peak]:
    found: dict[str, Peak] = {}
    for name, share in PERCENTILES.items():
        found |= {f"{name}_cpu_milli": model.cpu.peak(share), f"{name}_memory_bytes": model.mem.peak(share)}
    return found
