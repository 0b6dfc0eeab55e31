"""Figures: samples per core and second, the worker's and its peers', on the same backlog through Apache Kafka."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import admin, log, send
from bench.fleet import CAPACITY, PODS
from bench.meter import Cost, cost
from bench.peers import check, plain_aiokafka, plain_faust, reference
from bench.peers.answer import USABLE_PART, WINDOW_S
from bench.process import Running, Slacktide, environment
from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told
from bench.stamp import Stamped, StampedNode, evenly
from slacktide.agents.clock import SystemClock
from slacktide.schemas.topics import COMMAND, METRIC, NODE_PARTITIONS, SAMPLE
from testbed import rungs

REPLACED_EACH_S = 40
"""About so often a pod of a node is replaced by another."""
LONGEST_S = 15.0
"""A run is measured for so long at most, the plain Faust one always for a whole minute of its windows."""
MINUTE_LONGEST_S = 120.0
SAMPLES_PER_CORE_S, TIMES_FAUST, TIMES_STREAMS = 28_000, 24, 1.3
TITLES = {
    "slacktide": "slacktide stream",
    "faust": "plain Faust, one event at a time",
    "streams": "Kafka Streams, tuned and warm",
    "aiokafka": "plain aiokafka",
}
JAVA = Path(__file__).parent / "kafka_streams"
JVM = ("-XX:+UseParallelGC", "-Xms1g", "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


STEP_S, HISTORY_STEPS = 30, 62
"""Half an hour and a minute that are told in large steps, so that the worker's long windows are full, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a measurement."""

    per_partition: int
    """Nodes."""
    seconds: int
    """Of event time, a sample in each; before them lies the history."""
    runs: int

    @property
    def nodes(self) -> int:
        """In all partitions."""
        return self.per_partition * NODE_PARTITIONS

    @property
    def backlog(self) -> int:
        """Samples in all."""
        return self.nodes * (HISTORY_STEPS + self.seconds)

    @property
    def minute(self) -> int:
        """Samples a minute."""
        return self.nodes * WINDOW_S

    @property
    def full(self) -> int:
        """Samples until every node's windows are full."""
        return self.nodes * HISTORY_STEPS + self.minute


WHOLE, BRIEF = Size(per_partition=17, seconds=840, runs=3), Size(per_partition=5, seconds=240, runs=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One that is measured, and from where to where in the backlog."""

    title: str
    run: Callable[[Rig, str, str], AbstractContextManager[Running]]
    """From broker and topic of answers to the running process."""
    start: int
    end: int
    longest_s: float = LONGEST_S
    begin: reference.Begin | None = reference.sliding
    """What its windows hold; None: the worker, whose answers are others."""


def measure(rig: Rig) -> list[Row]:
    """All in turn, three times, so that a busy moment of the machine does not meet one of them alone."""
    _classpath(rig)
    size = BRIEF if rig.brief else WHOLE
    bootstrap = rig.kafka().bootstrap
    rig.say(f"peers: writing {size.backlog} samples of {size.nodes} nodes, {PODS} pods each")
    send.write(bootstrap, SAMPLE.name, backlog(size, SystemClock().wall_ms()))
    log.publish_policy(bootstrap, log.USUAL_POLICY)
    peers = _peers(size)
    found: dict[str, list[Cost]] = {name: [] for name in peers}
    for turn in range(size.runs):
        for name, peer in peers.items():
            found[name].append(_run(rig, bootstrap, peer, f"bench-{name}-{turn}", check_it=turn == 0))
    return _rows(found)


def backlog(size: Size, now_ms: int) -> Iterator[Stamped]:
    """Samples in the order in which they would have come; the seconds begin with a minute, and all end by now."""
    begin_ms = now_ms - size.seconds * 1000
    begin_ms -= begin_ms % (WINDOW_S * 1000)
    policy = log.USUAL_POLICY
    nodes = [StampedNode(number, policy, replaced_each_s=REPLACED_EACH_S) for number in evenly(size.per_partition)]
    for step in range(1 - HISTORY_STEPS, 1):
        yield from (node.stamp(begin_ms - 1000 + step * STEP_S * 1000, STEP_S * 1000) for node in nodes)
    for second in range(size.seconds):
        yield from (node.stamp(begin_ms + second * 1000) for node in nodes)


def _run(rig: Rig, bootstrap: str, peer: Peer, topic: str, *, check_it: bool) -> Cost:
    """Measure one and see that it works; the topic of a peer's answers is gone afterwards."""
    if peer.begin is None:
        before = log.end(bootstrap, COMMAND)
        with peer.run(rig, bootstrap, topic) as process:
            marks = before + peer.start, before + peer.end
            paid = cost(bootstrap, COMMAND.name, process, *marks, peer.longest_s, beside=METRIC.name)
        checked = check.ours(bootstrap) if check_it else ""
    else:
        admin.create(bootstrap, topic)
        with peer.run(rig, bootstrap, topic) as process:
            paid = cost(bootstrap, topic, process, peer.start, peer.end, peer.longest_s)
        checked = check.peer(bootstrap, topic, peer.begin) if check_it else ""
        admin.delete(bootstrap, [topic])
    rig.say(
        f"peers: {peer.title}: {paid.per_core_s:,.0f} samples/s per core, {paid.records:,} in {paid.cpu_s:.1f} CPU s "
        f"and {paid.wall_s:.1f} s, {paid.rss_mb:.0f} MB. {checked}"
    )
    return paid


def _rows(found: dict[str, list[Cost]]) -> list[Row]:
    rate = {name: statistics.median(run.per_core_s for run in runs) for name, runs in found.items()}
    ours, faust, streams = rate["slacktide"], rate["faust"], rate["streams"]
    n = len(found["slacktide"])
    return [
        judged(f"{TITLES['slacktide']}, {PODS} pods: samples per core and second", f">= {SAMPLES_PER_CORE_S:,}",
               f"median {ours:,.0f}: {ours / SAMPLES_PER_CORE_S:.2f} of the target; {_each(found['slacktide'])}; "
               f"{found['slacktide'][-1].beside / found['slacktide'][-1].records:.2f} NodeMetric a sample",
               met=ours >= SAMPLES_PER_CORE_S, n=n, rate=ours, runs=_runs(found["slacktide"])),
        judged("the same against plain Faust", f">= {TIMES_FAUST} x", f"{ours / faust:.2f} x of {faust:,.0f}",
               met=ours >= TIMES_FAUST * faust, n=n, ratio=ours / faust),
        judged("the same against Kafka Streams, warm", f">= {TIMES_STREAMS} x",
               f"{ours / streams:.2f} x of {streams:,.0f}", met=ours >= TIMES_STREAMS * streams, n=n,
               ratio=ours / streams),
        *(
            told(f"{TITLES[name]}, 60 s windows", f"median {rate[name]:,.0f}; {_each(runs)}; "
                 f"{max(run.rss_mb for run in runs):.0f} MB", n=n, rate=rate[name], runs=_runs(runs))
            for name, runs in found.items() if name != "slacktide"
        ),
    ]  # fmt: skip


def _each(runs: list[Cost]) -> str:
    return "runs " + ", ".join(f"{run.per_core_s:,.0f}" for run in runs)


def _runs(runs: list[Cost]) -> list[dict[str, float]]:
    return [{"records": run.records, "cpu_s": run.cpu_s, "wall_s": run.wall_s, "rss_mb": run.rss_mb} for run in runs]


@contextmanager
def _ours(rig: Rig, bootstrap: str, topic: str) -> Iterator[Running]:
    with Slacktide(rig, "stream", "--bootstrap", bootstrap, "--group", topic) as worker:
        yield worker


def _python(module: str, *more: str) -> Callable[[Rig, str, str], AbstractContextManager[Running]]:
    def run(rig: Rig, bootstrap: str, topic: str) -> Running:
        folder = [str(_folder(rig, topic)) for _ in more]
        command = [sys.executable, "-m", module, bootstrap, topic, *folder]
        return Running(rig, topic, command, environment())

    return run


def _streams(rig: Rig, bootstrap: str, topic: str) -> Running:
    usable = [str(CAPACITY.cpu_milli), str(CAPACITY.mem_bytes), str(USABLE_PART)]
    places = [bootstrap, SAMPLE.name, topic, str(_folder(rig, topic))]
    return Running(rig, topic, ["java", "-cp", _classpath(rig), *JVM, "Peer", *places, *usable])


def _folder(rig: Rig, topic: str) -> Path:
    folder = rig.memory / topic
    folder.mkdir()
    return folder


def _classpath(rig: Rig) -> str:
    """Kafka Streams' jars and the peer, compiled once a run.

    Raises:
        CannotRunError: something lacks; the text says how to get it.

    """
    libs = rungs.cache() / f"kafka-streams-{rungs.KAFKA_VERSION}"
    if not libs.is_dir():
        raise CannotRunError("lacks Kafka Streams' jars; to get them: tests/testbed/setup kafka-streams")
    classes = rig.memory / "classes"
    if not classes.is_dir():
        command = ["javac", "-cp", f"{libs}/*", "-d", str(classes), str(JAVA / "Peer.java")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise CannotRunError("lacks javac; to get it: apt-get install default-jdk-headless") from None
        if done.returncode:
            raise CannotRunError(f"javac refused Peer.java:\n{done.stderr}")
    return f"{classes}:{libs}/*"


def _peers(size: Size) -> dict[str, Peer]:
    return {
        "slacktide": Peer(title=TITLES["slacktide"], run=_ours, start=size.full, end=size.backlog, begin=None),
        "faust": Peer(
            title=TITLES["faust"],
            run=_python(plain_faust.__name__, "its folder"),
            start=size.full,
            end=size.full + size.minute,
            longest_s=MINUTE_LONGEST_S,
            begin=reference.tumbling,
        ),
        "streams": Peer(title=TITLES["streams"], run=_streams, start=size.backlog // 2, end=size.backlog),
        "aiokafka": Peer(
            title=TITLES["aiokafka"], run=_python(plain_aiokafka.__name__), start=size.full, end=size.backlog
        ),
    }
