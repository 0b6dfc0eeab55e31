"""Peak usage models of a node's pods: trained each minute with the 90th percentile, saved, and published to Kafka.

Training is pure. Its time is event time, so a replay trains the same models. Intervals begin at another time on each
node, so that workers do not publish the figures of all nodes in the same second. A start restores the models from the
state folder, else from the node's newest record of the last hour. Each record has its own connection, since records are
rare and idle connections cost the broker memory.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from zlib import crc32

from slacktide.agents.clock import Clock
from slacktide.agents.node.link import Channel
from slacktide.agents.node.outbox import of_forecast
from slacktide.agents.node.state import State
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.forecast import NODE, SYSTEM, Model, NodeForecast, PodModel
from slacktide.schemas.inventory import ENDED_PHASES, Pod, revision_of
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.prediction import peak_models
from slacktide.streams.decisions.prediction.mid_forecast import is_warm
from slacktide.streams.decisions.prediction.peak_models import PeakModel, PeakModels, PeakUse, SavedModel

TRAIN_EVERY_MS = 60_000
PUBLISH_MS = 10 * 60_000
_SHARE = 0.9
_UIDS: Mapping[str, str] = {SYSTEM: peak_models.SYSTEM, NODE: peak_models.NODE, **peak_models.CLASSES}
"""Name of an item in the record -> uid of its model."""


@dataclass(slots=True)
class _Usage:
    """Usage of one pod, or the node, in one interval: CPU in millicores, memory in bytes."""

    cpu: array[float] = field(default_factory=lambda: array("d"))
    mem: array[float] = field(default_factory=lambda: array("d"))

    def add(self, cpu_milli: float | None, mem_bytes: float | None) -> None:
        if cpu_milli is not None:
            self.cpu.append(cpu_milli)
        if mem_bytes is not None:
            self.mem.append(mem_bytes)

    def peak(self) -> PeakUse | None:
        """Return the 90th percentiles; None: CPU or memory is unknown."""
        if not self.cpu or not self.mem:
            return None
        return PeakUse(cpu_cores=_nearest(self.cpu) / 1_000, mem_bytes=_nearest(self.mem))


def _nearest(values: Sequence[float]) -> float:
    return sorted(values)[ceil(_SHARE * len(values)) - 1]


class Trainer:
    """The models of one node."""

    def __init__(self, node: str, boot_id: str, interval_ms: int = TRAIN_EVERY_MS) -> None:
        self.dropped = 0
        """Samples older than the last one of their model."""
        self._behind = 0
        self._node, self._boot_id, self._interval_ms = node, boot_id, interval_ms
        self._spread_ms = crc32(node.encode()) % interval_ms
        self._models = PeakModels()
        self._containers: dict[str, str] = {}
        self._usage: dict[str, _Usage] = {}
        self._whole = _Usage()
        self._pods: Sequence[Pod] = ()
        self._seen_ms = 0
        self._seq = 0
        self._published_ms: int | None = None
        self._warm = False
        self._anew = False
        """Whether a record is due because models were restored, created or reset."""

    def restore(self, forecast: NodeForecast) -> list[str]:
        """Restore published models, except those with more samples here. Return names of unusable models."""
        refused = []
        saved_items = [(name, _UIDS[name], model) for name, model in forecast.items.items() if name in _UIDS]
        of_pods = [(pod.uid, pod.uid, pod.peaks) for pod in forecast.pods if pod.uid not in peak_models.NODE_ITEMS]
        for name, uid, saved in (*saved_items, *of_pods):
            model = PeakModel.restored(SavedModel(cpu=saved.cpu, mem=saved.mem, updated_ms=saved.updated_ms))
            had = self._models.models.get(uid)
            if model is None:
                refused.append(name)
            elif had is None or had.samples < saved.samples:
                model.samples, model.since_ms = saved.samples, saved.since_ms
                self._models.models[uid] = model
        for pod in forecast.pods:
            self._containers.setdefault(pod.uid, pod.containers)
        self._anew = bool(self._models.models)
        return refused

    def saw(self, sample: NodeSample, pods: Sequence[Pod]) -> None:
        """Add a sample, in order. If it begins an interval, train on the previous interval."""
        if self._interval_of(sample.observed_ms) != self._interval_of(self._seen_ms):
            self._train()
        self._pods, self._seen_ms = pods, sample.observed_ms
        self._whole.add(sample.use.cpu_milli, sample.use.mem_bytes)
        for use in sample.pod_use:
            usage = self._usage.get(use.uid)
            if usage is None:
                usage = self._usage[use.uid] = _Usage()
            usage.add(use.cpu_milli, use.mem_bytes)

    def _interval_of(self, at_ms: int) -> int:
        return (at_ms + self._spread_ms) // self._interval_ms

    def _train(self) -> None:
        usage, self._usage = self._usage, {}
        whole, self._whole = self._whole, _Usage()
        if not self._seen_ms:
            return
        self._begin_restarted_anew()
        known = [(pod, usage[pod.uid].peak() if pod.uid in usage else None) for pod in self._pods]
        self._anew = self._anew or not self._models.synced
        dropped = self._models.train_known(known, whole.peak(), at_ms=self._seen_ms)
        self.dropped += dropped
        self._behind = self._behind + 1 if dropped else 0
        self._models.expire(at_ms=self._seen_ms)
        if self._behind * self._interval_ms > peak_models.EXPIRES_MS:
            # After the clock was set back, reset models that got no sample for half an hour because of it.
            models = self._models.models
            for uid in [uid for uid, model in models.items() if model.updated_ms > self._seen_ms]:
                del models[uid]
            self._behind, self._anew = 0, True

    def _begin_restarted_anew(self) -> None:
        """Drop models of removed pods. Reset those whose containers were replaced, perhaps by another program."""
        there = {pod.uid: pod for pod in self._pods if pod.phase not in ENDED_PHASES}
        models = self._models.models
        for uid in [uid for uid in models if uid not in peak_models.NODE_ITEMS and uid not in there]:
            del models[uid]
        for uid in self._containers.keys() - there.keys():
            del self._containers[uid]
        for uid, pod in there.items():
            ids = sorted(one.id for one in pod.containers if one.id)
            if not ids:
                continue
            now = revision_of(ids)
            if self._containers.get(uid, now) != now:
                self._anew = models.pop(uid, None) is not None or self._anew
            self._containers[uid] = now

    def due(self, colocation: Colocation) -> NodeForecast | None:
        """Return the record to publish; None: the last one is still valid."""
        if not self._models.models:
            return None
        # Warm: the system and a pod have enough samples for a prediction.
        models, cold_start_s = self._models.models, colocation.mid_cold_start_s
        system = models.get(peak_models.SYSTEM)
        pods = (model for uid, model in models.items() if uid not in peak_models.NODE_ITEMS)
        warm = (
            system is not None
            and is_warm(self._sampled_s(system), cold_start_s, of_pod=False)
            and any(is_warm(self._sampled_s(one), cold_start_s, of_pod=True) for one in pods)
        )
        last_ms = self._published_ms
        old = last_ms is None or not 0 <= self._seen_ms - last_ms < PUBLISH_MS
        if not (old or self._anew or (warm and not self._warm)):
            return None
        self._warm, self._anew, self._published_ms = warm, False, self._seen_ms
        return self.forecast()

    @property
    def trained(self) -> bool:
        """Whether there is a model to save."""
        return bool(self._models.models)

    def owe(self) -> None:
        """Publish again, since the last record did not arrive."""
        self._published_ms = None

    def forecast(self) -> NodeForecast:
        """Return all models as they are now."""
        self._seq += 1
        models = self._models.models
        mine = sorted(
            pod.uid
            for pod in self._pods
            if pod.phase not in ENDED_PHASES and effective_priority_class(pod) == "koord-prod"
        )
        listed = mine if self._seen_ms else sorted(models.keys() - peak_models.NODE_ITEMS)
        return NodeForecast(
            node=self._node,
            boot_id=self._boot_id,
            seq=self._seq,
            observed_ms=self._seen_ms or max(model.updated_ms for model in models.values()),
            interval_ms=self._interval_ms,
            pods=[
                PodModel(uid=uid, containers=self._containers.get(uid, ""), peaks=written(models[uid]))
                for uid in listed
                if uid in models
            ],
            items={name: written(models[uid]) for name, uid in _UIDS.items() if uid in models},
            unknown=[uid for uid in listed if uid not in models],
            dropped=self.dropped,
        )

    def _sampled_s(self, model: PeakModel) -> int:
        return model.samples * self._interval_ms // 1_000


def written(model: PeakModel) -> Model:
    """Return a model in the format of a forecast."""
    return Model(
        cpu_p95_milli=model.cpu.peak(0.95).amount,
        mem_p98_bytes=model.mem.peak(0.98).amount,
        samples=model.samples,
        since_ms=model.since_ms,
        updated_ms=model.updated_ms,
        cpu=model.cpu.checkpoint(),
        mem=model.mem.checkpoint(),
    )


log = logging.getLogger(__name__)

LOOK_S = 1.0
RECALL_MS = 3_600_000
"""How far back a start without a file reads. The topic keeps two days of all nodes."""


class ForecastPublisher:
    """Publishes each forecast that is due."""

    def __init__(
        self, trainer: Trainer, channel: Channel, state: State, clock: Clock, colocation: Callable[[], Colocation]
    ) -> None:
        self._trainer, self._channel, self._state, self._clock = trainer, channel, state, clock
        self._colocation = colocation
        kept = state.forecast()
        self._recalled = kept is not None
        """Whether the models are restored, so that Kafka need not be read."""
        if kept is not None:
            self._restore(kept)

    async def run(self) -> None:
        """Publish what is due each second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if not self._recalled:
                    await self._recall()
                if (forecast := self._trainer.due(self._colocation())) is not None:
                    self._state.keep_forecast(forecast)
                    await self._publish(forecast)
            except LogError as exc:
                await self._channel.broke(exc)

    def close(self) -> None:
        """Save the models for the next start, if there are any."""
        if self._trainer.trained:
            self._state.keep_forecast(self._trainer.forecast())

    async def _recall(self) -> None:
        """Restore the models from the node's newest record. Raise LogError if the topic cannot be read."""
        newest = await self._channel.newest(since_ms=max(0, self._clock.wall_ms() - RECALL_MS))
        self._recalled = True
        if newest is None or newest.value is None:
            return
        try:
            self._restore(decode(newest.value, NodeForecast))
        except BadMessageError as exc:
            log.warning("the node's forecast cannot be read; new models are trained", extra={"why": str(exc)})

    def _restore(self, forecast: NodeForecast) -> None:
        if refused := self._trainer.restore(forecast):
            log.warning("models cannot be read; new models are trained", extra={"of": refused})

    async def _publish(self, forecast: NodeForecast) -> None:
        """Publish a forecast. Raise LogError if that fails; a newer one follows later."""
        try:
            await self._channel.send(of_forecast(forecast))
        except LogError:
            self._trainer.owe()
            raise
        finally:
            await self._channel.close()
