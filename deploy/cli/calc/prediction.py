"""Cases of the rules of peak forecasts."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, GivenResources, amounts_out, because, pod_form
from slacktide.deploy.cli.calc.forms import AMOUNT_MAX, Amount, By, Flat, Form, Given, Nullable, Seconds
from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.schemas.inventory import Pod
from slacktide.schemas.metric import Use
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.prediction.mid_forecast import NodePeaks, PredictedPod, prod_reclaimable
from slacktide.streams.decisions.prediction.peak_models import (
    CPU_BUCKETS,
    MEM_BUCKETS,
    PERCENTILES,
    Peak,
    PeakHistogram,
    PeakModels,
    PeakUse,
    SavedModel,
)

HalfLife = Annotated[int, msgspec.Meta(ge=1, le=31_536_000)]
Value = Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
SampleWeight = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
TotalWeight = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
BucketWeight = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class Sample(Given, frozen=True, kw_only=True, tag_field="type", tag="sample"):
    """A usage in cores or bytes."""

    at_seconds: Seconds
    value: Value
    weight: SampleWeight = 1.0


class Restart(Given, frozen=True, kw_only=True, tag_field="type", tag="restart"):
    """The histogram is saved and loaded."""


Checkpoint = Annotated[
    PeakCheckpoint,
    Form(
        reference_ms=Annotated[int, By(lambda seconds, _: seconds * 1000, Seconds)],
        total_weight=TotalWeight,
        bucket_weights=dict[int, BucketWeight],
    ),
]


class Load(Given, frozen=True, kw_only=True, tag_field="type", tag="load"):
    """A checkpoint is loaded; if it is rejected, the histogram starts empty."""

    checkpoint: Checkpoint | None = None


def calc_peak_histogram(
    *, resource: Literal["cpu", "memory"], half_life_seconds: HalfLife, events: Sequence[Sample | Restart | Load]
) -> Calculated:
    """Compute percentiles of a usage with decaying weights; events are in the order of time."""
    buckets, half_life_ms = CPU_BUCKETS if resource == "cpu" else MEM_BUCKETS, half_life_seconds * 1000
    histogram, refused = PeakHistogram(buckets=buckets, half_life_ms=half_life_ms), 0
    for event in events:
        if isinstance(event, Sample):
            histogram.add(event.value, at_ms=event.at_seconds * 1000, weight=event.weight)
            continue
        saved = event.checkpoint if isinstance(event, Load) else histogram.checkpoint()
        loaded = PeakHistogram.restored(saved, buckets, half_life_ms=half_life_ms)
        refused += loaded is None
        histogram = loaded or PeakHistogram(buckets=buckets, half_life_ms=half_life_ms)
    peaks, kept = {name: histogram.peak(share) for name, share in PERCENTILES.items()}, histogram.checkpoint()
    return Calculated(
        output={
            "percentiles": {name: peak.amount for name, peak in peaks.items()},
            "empty": histogram.empty,
            "loads_refused": refused,
            "checkpoint": {
                "reference_seconds": kept.reference_ms // 1000,
                "total_weight": float(f"{kept.total_weight:.6g}"),
                "bucket_weights": {str(bucket): weight for bucket, weight in kept.bucket_weights.items()},
            },
        },
        because=[because(f"percentiles/{name}", peak) for name, peak in peaks.items()],
    )


GivenPeakUse = Annotated[PeakUse, Form(strict=True, mem_bytes=(Amount, 0))]
"""The usage of the last minute."""


class UsedPod(Pod, frozen=True, kw_only=True):
    """A pod on the node, and its usage; None: none."""

    usage: PeakUse | None = None


class Event(Given, frozen=True, kw_only=True):
    """An event of the models. Training reads pods and usage, a restart reads pods."""

    type: Literal["train", "gc", "checkpoint", "restart"]
    at_seconds: Seconds
    pods: Nullable[list[Annotated[UsedPod, pod_form(uid=str, usage=GivenPeakUse | None)]]] = []
    node_usage: GivenPeakUse | None = None


def calc_peak_models(*, events: Sequence[Event]) -> Calculated:
    """Train, save, restore and expire models of a node's peaks; events are in the order of time."""
    node = PeakModels()
    saved: dict[str, SavedModel] = {}
    after: list[dict[str, object]] = []
    for event in events:
        node, saved = _happen(node, saved, event)
        after.append({"synced": node.synced, "models": sorted(node.models), "saved": sorted(saved)})
    models: dict[str, object] = {}
    reasons: list[Because] = []
    for uid, model in sorted(node.models.items()):
        peaks: dict[str, Peak] = {}
        for name, share in PERCENTILES.items():
            peaks |= {f"{name}_cpu_milli": model.cpu.peak(share), f"{name}_memory_bytes": model.mem.peak(share)}
        percentiles = {name: peak.amount for name, peak in peaks.items()}
        models[uid] = {"last_updated_seconds": model.updated_ms // 1000, "percentiles": percentiles}
        reasons += [because(f"models/{uid}/{name}", each) for name, each in peaks.items()]
    return Calculated(output={"after_each_event": after, "models": models}, because=reasons)


def _happen(node: PeakModels, saved: dict[str, SavedModel], event: Event) -> tuple[PeakModels, dict[str, SavedModel]]:
    """Return the models and the saved models after an event."""
    at_ms, pods = event.at_seconds * 1000, event.pods
    if event.type == "restart":
        node = PeakModels.restored(saved, {pod.uid for pod in pods})
        return node, {uid: each for uid, each in saved.items() if uid in node.models}
    if event.type == "gc":
        gone = node.expire(at_ms=at_ms)
        return node, {uid: each for uid, each in saved.items() if uid not in gone}
    if event.type == "checkpoint":
        return node, saved | node.save(at_ms=at_ms)
    node.train([(pod, pod.usage) for pod in pods], event.node_usage, at_ms=at_ms)
    return node, saved


COLD_START_S = 86_400
SAFETY_MARGIN_PCT = 10
Margin = Annotated[int, msgspec.Meta(ge=-100, le=1_000_000)]
GivenPeaks = Annotated[Use, Form(names={"cpu_milli": "p95_cpu_milli", "mem_bytes": "p98_memory_bytes"})]
"""A model's prediction."""


GivenPredictedPod = Annotated[
    PredictedPod,
    Form(
        make=PredictedPod.of,
        names={"age_s": "age_seconds", "peak": "prediction"},
        pod=Flat[Annotated[Pod, pod_form(uid=str)]],
        deleting=(bool, False),
        peak=GivenPeaks | None,
    ),
]


def calc_prod_reclaimable(
    *,
    cold_start_seconds: Seconds = COLD_START_S,
    safety_margin_percent: Margin = SAFETY_MARGIN_PCT,
    node_allocatable: GivenResources | None = None,
    raw_allocatable: GivenResources | None = None,
    node_items: Mapping[str, GivenPeaks | None] | None = None,
    pods: Nullable[Sequence[GivenPredictedPod]] = (),
) -> Calculated:
    """Compute mid resources from the predicted use of production pods.

    ``raw_allocatable`` replaces all of ``node_allocatable``.
    """
    items = node_items or {}
    found = prod_reclaimable(
        pods,
        NodePeaks(system=items.get("sys"), prod=items.get("koord-prod"), unclassed=items.get("")),
        allocatable=node_allocatable if raw_allocatable is None else raw_allocatable,
        cold_start_s=cold_start_seconds,
        safety_margin_pct=safety_margin_percent,
    )
    uses = {
        "pod_reclaimable": found.by_pods,
        "priority_reclaimable": found.by_node,
        "prod_reclaimable": found.reclaimable,
        "pod_peak": found.pod_peak,
        "priority_peak": found.node_peak,
        "prod_peak": found.peak,
    }
    output = {name: None if use is None else amounts_out(use) for name, use in uses.items()}
    return Calculated(output=output | {"pods_refused": list(found.refused)}, because=found.because)
