"""``slacktide calc peak_histogram``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import AMOUNT_MAX, Calculated, Given, Seconds
from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.prediction.peak_histogram import CPU_BUCKETS, MEM_BUCKETS, PERCENTILES, PeakHistogram

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


class Checkpoint(Given, frozen=True, kw_only=True):
    """A saved histogram."""

    reference_seconds: Seconds
    total_weight: TotalWeight
    bucket_weights: dict[int, BucketWeight]

    def kept(self) -> PeakCheckpoint:
        """Convert to the rule's type."""
        return PeakCheckpoint(
            reference_ms=self.reference_seconds * 1000,
            total_weight=self.total_weight,
            bucket_weights=self.bucket_weights,
        )


class Load(Given, frozen=True, kw_only=True, tag_field="type", tag="load"):
    """A checkpoint is loaded; if it is rejected, the histogram starts empty."""

    checkpoint: Checkpoint | None = None

    def kept(self) -> PeakCheckpoint | None:
        """Convert to the rule's type."""
        return None if self.checkpoint is None else self.checkpoint.kept()


class Input(Given, frozen=True, kw_only=True):
    """A resource, the half-life, and the histogram's events in the order of time."""

    resource: Literal["cpu", "memory"]
    half_life_seconds: HalfLife
    events: list[Sample | Restart | Load]


def calculate(given: Input) -> Calculated:
    """Compute percentiles of a usage with decaying weights."""
    buckets = CPU_BUCKETS if given.resource == "cpu" else MEM_BUCKETS
    half_life_ms = given.half_life_seconds * 1000
    histogram, refused = PeakHistogram(buckets=buckets, half_life_ms=half_life_ms), 0
    for event in given.events:
        if isinstance(event, Sample):
            histogram.add(event.value, at_ms=event.at_seconds * 1000, weight=event.weight)
            continue
        kept = histogram.checkpoint() if isinstance(event, Restart) else event.kept()
        loaded = PeakHistogram.restored(kept, buckets, half_life_ms=half_life_ms)
        refused += loaded is None
        histogram = loaded or PeakHistogram(buckets=buckets, half_life_ms=half_life_ms)
    peaks = {name: histogram.peak(share) for name, share in PERCENTILES.items()}
    return Calculated(
        output={
            "percentiles": {name: peak.amount for name, peak in peaks.items()},
            "empty": histogram.empty,
            "loads_refused": refused,
            "checkpoint": _shown(histogram.checkpoint()),
        },
        because=[Because(of=f"percentiles/{name}", bound=peak.bound, terms=peak.terms) for name, peak in peaks.items()],
    )


def _shown(kept: PeakCheckpoint) -> dict[str, object]:
    return {
        "reference_seconds": kept.reference_ms // 1000,
        "total_weight": float(f"{kept.total_weight:.6g}"),
        "bucket_weights": {str(bucket): weight for bucket, weight in kept.bucket_weights.items()},
    }
