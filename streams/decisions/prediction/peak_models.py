"""Models of one node's peaks: one per pod, per class of pods, for the system and for the whole node.

Reading: koordinator a7a1b76b, pkg/koordlet/prediction/predict_server.go, checkpoint.go. Different on purpose: models
saved at the same time are ordered by uid, and an invalid checkpoint creates no model instead of an empty one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Self

import msgspec

from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.qos import BANDS, effective_priority_class
from slacktide.streams.decisions.prediction.peak_histogram import CPU_BUCKETS, MEM_BUCKETS, PeakHistogram

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
        self._add(_samples(pods, node), at_ms)

    def train_known(self, pods: Sequence[tuple[Pod, PeakUse | None]], node: PeakUse | None, *, at_ms: int) -> int:
        """Add a sample to each production pod and node item whose usage is known, but none to a class without pods.

        Return the number of samples dropped because their model has a newer one.
        """
        samples = list(_known_samples(pods, node))
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
        due = [(uid, each) for uid, each in self.models.items() if _due(each, at_ms)]
        due.sort(key=lambda item: (item[1].saved_ms is not None, item[1].saved_ms or 0, item[0]))
        return {uid: model.save(at_ms=at_ms) for uid, model in due[:SAVES_MAX]}


def _due(model: PeakModel, at_ms: int) -> bool:
    return model.saved_ms is None or at_ms - model.saved_ms >= SAVE_EVERY_MS


def _samples(pods: Sequence[tuple[Pod, PeakUse | None]], node: PeakUse | None) -> Iterator[tuple[str, PeakUse]]:
    sums = dict.fromkeys(CLASSES, NO_USE)
    together = NO_USE
    for pod, use in pods:
        if use is not None:
            band = effective_priority_class(pod)
            sums[band], together = sums[band].plus(use), together.plus(use)
            yield pod.uid, use
    for band, uid in CLASSES.items():
        yield uid, sums[band]
    if node is not None:
        yield NODE, node
    yield SYSTEM, (node or NO_USE).beyond(together)


def _known_samples(pods: Sequence[tuple[Pod, PeakUse | None]], node: PeakUse | None) -> Iterator[tuple[str, PeakUse]]:
    sums: dict[str, PeakUse] = {}
    for pod, use in pods:
        if use is not None and pod.phase not in ENDED_PHASES:
            band = effective_priority_class(pod)
            sums[band] = sums.get(band, NO_USE).plus(use)
            if band == "koord-prod":
                yield pod.uid, use
    for band, use in sums.items():
        yield CLASSES[band], use
    if node is not None:
        yield NODE, node
        yield SYSTEM, node.beyond(reduce(PeakUse.plus, sums.values(), NO_USE))
