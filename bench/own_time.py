"""Where a worker's time goes: samples answered in this process, without a log, and looked at every 2 ms of CPU time."""

import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import FrameType

from bench import log
from bench.rig import Rig
from bench.rows import Row, told
from bench.stamp import Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.codec import encode
from slacktide.schemas.policy import KEY
from slacktide.schemas.topics import POLICY
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker

NODES, TOGETHER = 204, 816
HISTORY = 60 * [30_000] + 150 * [2_000]
"""Between samples, ms: half an hour, then the policy's window in small steps, so that all windows are full."""
SECONDS, BRIEF_SECONDS = 100, 5
LOOK_S = 0.002
STAGES = {
    "slacktide.streams.columns.numbers": "the lists of numbers",
    "slacktide.streams.columns.turn": "arrays of a fetch",
    "slacktide.streams.columns.screen": "the suppress rule",
    "slacktide.streams.columns.lines": "answers",
    "slacktide.streams.columns.block": "into the windows",
    "slacktide.streams.columns": "into the windows",
    "slacktide.streams.columns.figures": "what to publish",
    "slacktide.streams.columns.publish": "NodeMetric, allocatable and score",
    "slacktide.streams.columns.offered": "NodeMetric, allocatable and score",
    "slacktide.streams.worker.fast": "heads, and what joins the steps",
    "slacktide.streams.worker.publishing": "what to publish",
    "slacktide.streams.worker.reading": "samples alone",
    "slacktide.streams.worker.node_state": "samples alone",
    "slacktide.streams.decisions": "samples alone",
}
"""By module: the innermost that is running counts."""


def measure(rig: Rig) -> list[Row]:
    """Shares of a worker's own CPU time; what the client of the log costs comes on top of it."""
    rig.say(f"profile: half an hour of {NODES} nodes")
    worker = Worker("profile")
    worker.policy(_record(POLICY.name, 0, KEY.encode(), encode(log.USUAL_POLICY)))
    start_ms = SystemClock().wall_ms() - sum(HISTORY)
    nodes = [StampedNode(number, log.USUAL_POLICY, replaced_each_s=40) for number in range(NODES)]
    for step_ms in HISTORY:
        start_ms += step_ms
        _answer(worker, [node.stamp(start_ms, step_ms) for node in nodes])
    seconds = BRIEF_SECONDS if rig.brief else SECONDS
    rig.say(f"profile: {seconds} s of them")
    samples = [node.stamp(start_ms + (second + 1) * 1_000) for second in range(seconds) for node in nodes]
    looks = _Looks()
    with looks:
        used_s = _answer(worker, samples)
    shares = looks.shares()
    said = ", ".join(f"{stage} {share:.0%}" for stage, share in shares.items())
    each_us = used_s / len(samples) * 1e6
    return [told("worker's own time, a sample", f"{each_us:.0f} us: {said}", n=len(samples), us=each_us, shares=shares)]


def _answer(worker: Worker, samples: Sequence[Stamped]) -> float:
    """Answer them; the CPU seconds that it took."""
    records = [_record(one.topic, one.partition, one.key, one.value, offset) for offset, one in enumerate(samples)]
    now_ms = SystemClock().wall_ms()
    began_s = time.thread_time()
    for begin in range(0, len(records), TOGETHER):
        worker.samples(records[begin : begin + TOGETHER], now_ms)
    return time.thread_time() - began_s


def _record(topic: str, partition: int, key: bytes, value: bytes, offset: int = 0) -> Record:
    return Record(topic=topic, partition=partition, offset=offset, timestamp_ms=0, key=key, value=value)


class _Looks:
    """Looks at what is running, by a timer of CPU time: unlike a tracer it makes no function dearer than another."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, LOOK_S, LOOK_S)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)

    def shares(self) -> dict[str, float]:
        """Of each stage, the largest first."""
        return {stage: count / self._seen.total() for stage, count in self._seen.most_common()}

    def _look(self, _: int, frame: FrameType | None) -> None:
        running = (stage for name in _modules(frame) if (stage := _stage(name)))
        self._seen[next(running, "the rest")] += 1


def _stage(module: str) -> str:
    """By itself or by its package; "": of none."""
    return STAGES.get(module) or STAGES.get(module.rpartition(".")[0], "")


def _modules(frame: FrameType | None) -> Iterable[str]:
    """Of the functions that are running, the innermost first."""
    while frame is not None:
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back
