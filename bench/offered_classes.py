"""What forecasts and the free class cost a worker: the same samples with and without them, by turns, in one process.

``PYTHONPATH=tests python -m bench.offered_classes``. The medians of blocks in one process hold on a busy machine, too.
"""

import time
from collections.abc import Sequence
from statistics import median

import msgspec

from bench import log
from bench.stamp import Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.agents.node.forecast import PUBLISH_MS, written
from slacktide.deploy.runtime import garbage
from slacktide.deploy.runtime.text import show
from slacktide.schemas.codec import encode
from slacktide.schemas.forecast import SYSTEM, Model, NodeForecast, PodModel
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.topics import FORECAST, POLICY
from slacktide.streams.decisions.prediction.mid_forecast import PROD
from slacktide.streams.decisions.prediction.peak_models import PeakModel, PeakUse
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker

NODES, FETCH = 204, 816
SECONDS, BLOCK_S = 120, 5
"""How long, and what is compared at a time: in a block the figures of each node are published once."""
WARM_UP_S = 3
SPARSE = 60
HISTORY_MS = [*[30_000] * SPARSE, *[2_000] * 150]
"""Steps between the samples before: half an hour, then five dense minutes. In these each node has its first forecast,
one node after the other, as agents send them."""
REPLACED_EACH_S = 40


def _record(topic: str, partition: int, key: bytes, value: bytes, at: int = 0) -> Record:
    return Record(topic=topic, partition=partition, offset=at, timestamp_ms=at, key=key, value=value)


def _model(at_ms: int) -> Model:
    """Of two days, with histograms of many buckets."""
    model = PeakModel.new(at_ms=at_ms)
    for minute in range(2_880):
        spread = (minute * 7_919) % 2_880 / 2_880
        model.add(PeakUse(cpu_cores=0.4 * spread, mem_bytes=spread * 2**30), at_ms=at_ms + minute * 60_000)
    return written(model)


class Side:
    """A worker with nodes of its own, all of them the same on both sides.

    Args:
        policy: of the worker.
        start_ms: when the history begins.
        model: of each forecast; None: there is none.

    """

    def __init__(self, policy: Policy, start_ms: int, model: Model | None = None) -> None:
        self._worker = Worker("bench")
        self._worker.policy(_record(POLICY.name, 0, KEY.encode(), encode(policy)))
        self.nodes = [StampedNode(number, policy, replaced_each_s=REPLACED_EACH_S) for number in range(NODES)]
        self.cpu_s = 0.0
        for number, step_ms in enumerate(HISTORY_MS):
            start_ms += step_ms
            if model is not None and number >= SPARSE:
                self.hold_forecast(self.nodes[number - SPARSE :: len(HISTORY_MS) - SPARSE], model, start_ms)
            self.answer([node.stamp(start_ms, step_ms) for node in self.nodes])

    def answer(self, samples: Sequence[Stamped]) -> None:
        """Count the CPU time of this thread."""
        records = [_record(one.topic, one.partition, one.key, one.value, place) for place, one in enumerate(samples)]
        now_ms, begun_s = SystemClock().wall_ms(), time.thread_time()
        for place in range(0, len(records), FETCH):
            self._worker.samples(records[place : place + FETCH], now_ms)
        self.cpu_s += time.thread_time() - begun_s

    def hold_forecast(self, nodes: Sequence[StampedNode], model: Model, at_ms: int) -> None:
        """Take in a forecast of each node, and count that, too."""
        records = [_forecast(node, model, at_ms) for node in nodes]
        begun_s = time.thread_time()
        self._worker.forecasts(records)
        self.cpu_s += time.thread_time() - begun_s


def _forecast(node: StampedNode, model: Model, at_ms: int) -> Record:
    forecast = NodeForecast(
        node=node.name,
        boot_id=node.boot_id,
        seq=at_ms,
        observed_ms=at_ms,
        interval_ms=60_000,
        pods=[PodModel(uid=pod.uid, peaks=model) for pod in node.pods if pod.kube_qos != "BestEffort"],
        items={SYSTEM: model, PROD: model, "node": model},
    )
    return _record(FORECAST.name, node.partition, node.name.encode(), encode(forecast), at_ms)


def report() -> dict[str, float]:
    """Medians: CPU time of a sample on both sides, and how much lower throughput is with both."""
    usual = log.USUAL_POLICY
    colocation = msgspec.structs.replace(usual.colocation, free_class_enable=True)
    start_ms = SystemClock().wall_ms() - sum(HISTORY_MS)
    model = _model(start_ms - 2_880 * 60_000)
    without = Side(usual, start_ms)
    having = Side(msgspec.structs.replace(usual, colocation=colocation), start_ms, model)
    sides = without, having
    start_ms += sum(HISTORY_MS)
    garbage.seldom()  # as a worker does
    blocks: list[list[float]] = []
    for second in range(1, WARM_UP_S + SECONDS + 1):
        at_ms = start_ms + second * 1_000
        due = [node for place, node in enumerate(having.nodes) if place * PUBLISH_MS // NODES // 1_000 == second]
        having.hold_forecast(due, model, at_ms)
        for side in sides if second % 2 else reversed(sides):
            side.answer([node.stamp(at_ms) for node in side.nodes])
        if second >= WARM_UP_S and (second - WARM_UP_S) % BLOCK_S == 0:
            blocks.append([side.cpu_s / BLOCK_S / NODES * 1e6 for side in sides])
            without.cpu_s = having.cpu_s = 0.0
    blocks = blocks[1:]  # the first one is the warm-up
    us_without, us_with = (median(each) for each in zip(*blocks, strict=True))
    lower = median(1 - less / more for less, more in blocks)
    return {"us_without": us_without, "us_with": us_with, "throughput_lower_pct": 100 * lower}


if __name__ == "__main__":
    for name, figure in report().items():
        show(f"{name:25} {figure:12,.3f}")
