"""Models of one node's peaks: one per pod, per class of pods, for the system and for the whole node.

A peak is a percentile of a histogram whose samples lose half their weight per half-life. Each bucket is 5% wider than
the one below it. Old weights do not change: a newer sample weighs more, ``2 ** ((its time - reference) / half-life)``.
The reference moves only when these weights grow too large. Time is that of the samples, in milliseconds since 1970.
Reading: koordinator a7a1b76b, pkg/util/histogram/histogram.go, histogram_options.go and decaying_histogram.go;
pkg/koordlet/prediction/peak_predictor.go, which defines the first bucket and the upper limit of CPU and memory;
predict_server.go, checkpoint.go. Different on purpose: models saved at the same time are ordered by uid, and an invalid
checkpoint creates no model instead of an empty one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Self

import msgspec

from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import BANDS, effective_priority_class

_RATIO = 1.0 + 0.05
_GROWTH = _RATIO - 1
_LOG_RATIO = math.log(_RATIO)


class Buckets(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The buckets of one resource."""

    first: float
    """Width of bucket 0, in cores or bytes."""
    count: int
    unit: str
    """Unit of a peak: ``milli`` or ``bytes``."""
    per_unit: float
    """Units per core or byte."""

    def bucket_of(self, value: float) -> int:
        """Return the bucket of a usage in cores or bytes. The last bucket holds all larger values."""
        if value < self.first:
            return 0
        return min(self.count - 1, int(_steps(value, self.first)))

    def start(self, bucket: int) -> float:
        """Return the start of a bucket in cores or bytes: the end of the bucket below it."""
        return self.first * (_RATIO**bucket - 1) / _GROWTH


def _steps(value: float, first: float) -> float:
    return math.log(value * _GROWTH / first + 1) / _LOG_RATIO


def _buckets(*, first: float, top: float, unit: str, per_unit: float) -> Buckets:
    return Buckets(first=first, count=math.ceil(_steps(top, first)) + 1, unit=unit, per_unit=per_unit)


CPU_BUCKETS = _buckets(first=0.025, top=1024.0, unit="milli", per_unit=1000.0)
"""From 25 millicores to 1024 cores: 158 buckets."""
MEM_BUCKETS = _buckets(first=5242880.0, top=float(2**41), unit="bytes", per_unit=1.0)
"""From 5 MiB to 2 TiB: 205 buckets."""


YEAR_1_MS = -62_135_596_800_000
"""The reference of a new histogram, and the origin of half-lives."""
EPSILON = 0.001 * 0.1
"""A bucket with less weight counts as empty."""
HALF_LIVES_MAX = 100
"""A sample later than this after the reference moves it."""
CHECKPOINT_WEIGHT_MAX = 10_000.0
PERCENTILES = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}


class Peak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A percentile of the usage, with its arithmetic."""

    amount: int
    """Millicores or bytes, at the end of the bucket. 0 only if the histogram is empty."""
    bound: str
    """``empty``, ``bucket`` or ``last_bucket``, whose start is the amount."""
    terms: Terms


@dataclass(slots=True, kw_only=True)
class PeakHistogram:
    """Samples of one usage. Mutable."""

    buckets: Buckets
    half_life_ms: int
    """At least 1."""
    reference_ms: int = YEAR_1_MS
    total: float = 0.0
    """Weight of all samples, including buckets that count as empty."""
    weights: array[float] = field(init=False, default_factory=lambda: array("d"))
    """Weights of the buckets from ``base`` to the highest with a sample: usually few of all."""
    base: int = field(init=False, default=0)
    low: int = field(init=False)
    """``low`` and ``high`` are the lowest and highest non-empty bucket. Without one, ``low`` exceeds ``high``."""
    high: int = 0

    def __post_init__(self) -> None:
        self.low = self.buckets.count - 1

    @property
    def empty(self) -> bool:
        """Whether all buckets count as empty."""
        return self.weight(self.low) < EPSILON

    def weight(self, bucket: int) -> float:
        """Return the weight of a bucket, even if it is below EPSILON."""
        place = bucket - self.base
        return self.weights[place] if 0 <= place < len(self.weights) else 0.0

    def _place(self, bucket: int) -> int:
        """Return the index of a bucket's weight. Extend the weights to it."""
        self.base = self.base if self.weights else bucket
        below, above = self.base - bucket, bucket - self.base - len(self.weights) + 1
        if below > 0:
            self.weights, self.base = array("d", bytes(8 * below)) + self.weights, bucket
        elif above > 0:
            self.weights += array("d", bytes(8 * above))
        return bucket - self.base

    def add(self, value: float, *, at_ms: int, weight: float = 1.0) -> None:
        """Add a sample in cores or bytes, at least 0. A sample from before the reference weighs less."""
        if at_ms > self.reference_ms + HALF_LIVES_MAX * self.half_life_ms:
            self._shift(at_ms)
        weight *= 2.0 ** ((at_ms - self.reference_ms) / self.half_life_ms)
        bucket = self.buckets.bucket_of(value)
        place = self._place(bucket)
        self.weights[place] += weight
        self.total += weight
        if self.weights[place] >= EPSILON:
            self.low, self.high = min(self.low, bucket), max(self.high, bucket)

    def _shift(self, at_ms: int) -> None:
        """Move the reference to the nearest half-life, and scale the weights down by a power of 2."""
        reference_ms = YEAR_1_MS + (2 * (at_ms - YEAR_1_MS) + self.half_life_ms) // (2 * self.half_life_ms) * (
            self.half_life_ms
        )
        factor = math.ldexp(1.0, math.floor((self.reference_ms - reference_ms) / self.half_life_ms + 0.5))
        for bucket in range(self.low, self.high + 1):
            self.weights[bucket - self.base] *= factor
        self.total *= factor
        while self.low < self.buckets.count - 1 and self.weight(self.low) < EPSILON:
            self.low += 1
        while self.high > 0 and self.weight(self.high) < EPSILON:
            self.high -= 1
        self.reference_ms = reference_ms

    def peak(self, share: float) -> Peak:
        """Return the percentile at this share of the weight, 0 to 1."""
        if self.empty:
            return Peak(amount=0, bound="empty", terms={"total_weight": self.total})
        threshold = share * self.total
        bucket, below = self.low, self.weight(self.low)
        while bucket < self.high and below < threshold:
            bucket += 1
            below += self.weight(bucket)
        last = self.buckets.count - 1
        amount = int(self.buckets.start(min(bucket + 1, last)) * self.buckets.per_unit)
        terms: Terms = {"total_weight": self.total, "threshold_weight": threshold, "bucket": bucket}
        terms[f"peak_{self.buckets.unit}"] = amount
        return Peak(amount=amount, bound="bucket" if bucket < last else "last_bucket", terms=terms)

    def checkpoint(self) -> PeakCheckpoint:
        """Return the state to save. Only the total weight includes buckets below 1/20,000 of the heaviest."""
        kept = range(self.low, self.high + 1)
        heaviest = max((self.weight(bucket) for bucket in kept), default=0.0)
        ratio = CHECKPOINT_WEIGHT_MAX / heaviest if heaviest else math.inf
        shape = {} if math.isinf(ratio) else {bucket: math.floor(self.weight(bucket) * ratio + 0.5) for bucket in kept}
        return PeakCheckpoint(
            reference_ms=self.reference_ms,
            total_weight=self.total,
            bucket_weights={bucket: weight for bucket, weight in shape.items() if weight},
        )

    @classmethod
    def restored(cls, checkpoint: PeakCheckpoint | None, buckets: Buckets, *, half_life_ms: int) -> Self | None:
        """Restore a checkpoint: its total weight over the saved buckets. None without one, or if it is invalid."""
        if checkpoint is None or checkpoint.total_weight < 0:
            return None
        shape = checkpoint.bucket_weights
        if any(not 0 <= bucket < buckets.count for bucket in shape):
            return None
        new = cls(buckets=buckets, half_life_ms=half_life_ms, reference_ms=checkpoint.reference_ms)
        parts = sum(shape.values())
        if parts:
            for bucket, weight in shape.items():
                place = new._place(bucket)  # first, because it may replace the array
                new.weights[place] = weight * (checkpoint.total_weight / parts)
            new.low, new.high, new.total = min(shape), max(shape), checkpoint.total_weight
        return new


CPU_HALF_LIFE_MS = 12 * 3_600_000
MEM_HALF_LIFE_MS = 24 * 3_600_000
EXPIRES_MS = 30 * 60_000
SAVE_EVERY_MS = 10 * 60_000
SAVES_MAX = 12
"""Per call of ``PeakModels.save``."""
NODE = "__node__"
SYSTEM = "__node-sys__"
CLASSES = {name: f"__node-{name}__" for name in (*BANDS, "")}
"""Class of pods -> uid of its model; "": no class."""
NODE_ITEMS = frozenset({NODE, SYSTEM, *CLASSES.values()})
"""Uids of all models except those of pods."""


class PeakUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A usage: the 90th percentile of the last minute."""

    cpu_cores: float = 0.0
    mem_bytes: float = 0.0

    def plus(self, other: PeakUse) -> PeakUse:
        """Return the sum."""
        return PeakUse(cpu_cores=self.cpu_cores + other.cpu_cores, mem_bytes=self.mem_bytes + other.mem_bytes)

    def beyond(self, other: PeakUse) -> PeakUse:
        """Return the excess over the other, at least 0."""
        return PeakUse(
            cpu_cores=max(0.0, self.cpu_cores - other.cpu_cores), mem_bytes=max(0.0, self.mem_bytes - other.mem_bytes)
        )


NO_USE = PeakUse()


class SavedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The saved part of a model."""

    cpu: PeakCheckpoint
    mem: PeakCheckpoint
    updated_ms: int
    """Set by ``PeakModel.save`` to the time of the save, as in the reference."""


@dataclass(slots=True, kw_only=True)
class PeakModel:
    """CPU in cores and memory in bytes of one pod, class, system or node."""

    cpu: PeakHistogram
    mem: PeakHistogram
    updated_ms: int
    saved_ms: int | None = None
    """None: not saved since it was created or restored."""
    since_ms: int = 0
    """Time of the first sample; 0 in a restored model until the caller sets it."""
    samples: int = 0

    @classmethod
    def new(cls, *, at_ms: int) -> Self:
        """Return a model without samples."""
        return cls(
            cpu=PeakHistogram(buckets=CPU_BUCKETS, half_life_ms=CPU_HALF_LIFE_MS),
            mem=PeakHistogram(buckets=MEM_BUCKETS, half_life_ms=MEM_HALF_LIFE_MS),
            updated_ms=at_ms,
            since_ms=at_ms,
        )

    @classmethod
    def restored(cls, saved: SavedModel) -> Self | None:
        """Restore a saved model; None if one of its checkpoints is invalid."""
        cpu = PeakHistogram.restored(saved.cpu, CPU_BUCKETS, half_life_ms=CPU_HALF_LIFE_MS)
        mem = PeakHistogram.restored(saved.mem, MEM_BUCKETS, half_life_ms=MEM_HALF_LIFE_MS)
        return None if cpu is None or mem is None else cls(cpu=cpu, mem=mem, updated_ms=saved.updated_ms)

    def add(self, use: PeakUse, *, at_ms: int) -> None:
        """Add a sample."""
        self.cpu.add(use.cpu_cores, at_ms=at_ms)
        self.mem.add(use.mem_bytes, at_ms=at_ms)
        self.updated_ms = at_ms
        self.samples += 1

    def save(self, *, at_ms: int) -> SavedModel:
        """Return the part to save, and record the time."""
        self.saved_ms = at_ms
        return SavedModel(cpu=self.cpu.checkpoint(), mem=self.mem.checkpoint(), updated_ms=at_ms)


@dataclass(slots=True, kw_only=True)
class PeakModels:
    """All models of one node by uid. Mutable; the caller stores the saved models."""

    models: dict[str, PeakModel] = field(default_factory=dict)
    synced: bool = False
    """Whether they were trained since the restore. Before that, none expires and none is saved."""

    @classmethod
    def restored(cls, saved: Mapping[str, SavedModel], uids: Collection[str]) -> Self:
        """Restore the models of pods on the node and of the node's items. The caller deletes the others."""
        wanted = {uid: PeakModel.restored(each) for uid, each in saved.items() if uid in NODE_ITEMS or uid in uids}
        return cls(models={uid: model for uid, model in wanted.items() if model is not None})

    def train(self, pods: Sequence[tuple[Pod, PeakUse | None]], node: PeakUse | None, *, at_ms: int) -> None:
        """Add a sample to each pod that has a usage, and to each item of the node.

        A class without pods gets a sample of 0. So does the system if the node's usage is unknown.
        """
        sums = dict.fromkeys(CLASSES, NO_USE)
        together, samples = NO_USE, list[tuple[str, PeakUse]]()
        for pod, use in pods:
            if use is not None:
                band = effective_priority_class(pod)
                sums[band], together = sums[band].plus(use), together.plus(use)
                samples.append((pod.uid, use))
        samples += [(uid, sums[band]) for band, uid in CLASSES.items()]
        if node is not None:
            samples.append((NODE, node))
        samples.append((SYSTEM, (node or NO_USE).beyond(together)))
        self._add(samples, at_ms)

    def train_known(self, pods: Sequence[tuple[Pod, PeakUse | None]], node: PeakUse | None, *, at_ms: int) -> int:
        """Add a sample to each production pod and node item whose usage is known, but none to a class without pods.

        Return the number of samples dropped because their model has a newer one.
        """
        sums: dict[str, PeakUse] = {}
        samples = []
        for pod, use in pods:
            if use is not None and pod.phase not in ENDED_PHASES:
                band = effective_priority_class(pod)
                sums[band] = sums.get(band, NO_USE).plus(use)
                if band == "koord-prod":
                    samples.append((pod.uid, use))
        samples += [(CLASSES[band], use) for band, use in sums.items()]
        if node is not None:
            samples += [(NODE, node), (SYSTEM, node.beyond(reduce(PeakUse.plus, sums.values(), NO_USE)))]
        newer = [(uid, use) for uid, use in samples if uid not in self.models or self.models[uid].updated_ms <= at_ms]
        self._add(newer, at_ms)
        return len(samples) - len(newer)

    def _add(self, samples: Iterable[tuple[str, PeakUse]], at_ms: int) -> None:
        for uid, use in samples:
            if uid not in self.models:
                self.models[uid] = PeakModel.new(at_ms=at_ms)
            self.models[uid].add(use, at_ms=at_ms)
        self.synced = True

    def expire(self, *, at_ms: int) -> list[str]:
        """Drop models without a sample for over 30 minutes. The caller deletes their saved models."""
        if not self.synced:
            return []
        gone = [uid for uid, model in self.models.items() if at_ms - model.updated_ms > EXPIRES_MS]
        for uid in gone:
            del self.models[uid]
        return gone

    def save(self, *, at_ms: int) -> dict[str, SavedModel]:
        """Save up to 12 models: first those never saved, then those saved 10 minutes ago or earlier, oldest first."""
        if not self.synced:
            return {}
        due = [
            (uid, each)
            for uid, each in self.models.items()
            if each.saved_ms is None or at_ms - each.saved_ms >= SAVE_EVERY_MS
        ]
        due.sort(key=lambda item: (item[1].saved_ms is not None, item[1].saved_ms or 0, item[0]))
        return {uid: model.save(at_ms=at_ms) for uid, model in due[:SAVES_MAX]}
