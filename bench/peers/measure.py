"""Figures: samples per core and second, the worker's and its peers', on the same backlog through Apache Kafka."""

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from bench.stamp import Form, Stamped, StampedNode, evenly
from slacktide.agents.clock import SystemClock
from slacktide.schemas.topics import COMMAND, METRIC, NODE_PARTITIONS, SAMPLE, TOPICS, Topic
from testbed import rungs
from testbed.brokers import KafkaBroker

REPLACED_EACH_S = 40
"""About so often a pod of a node is replaced by another."""
LONGEST_S = 15.0
"""A run is measured for so long at most, the plain Faust one always for a whole minute of its windows."""
MINUTE_LONGEST_S = 120.0
SAMPLES_PER_CORE_S, AIM_PER_CORE_S, TIMES_FAUST, TIMES_STREAMS = 28_000, 35_000, 19, 1.2
DEFAULT_S, LONGEST_REPUBLISH_S = 5, 30
"""After so long a worker publishes unchanged figures again: as it comes, and once all readers are upgraded."""
JUDGED = "slacktide"
OTHERS = {
    "slacktide, default": f"slacktide stream, columns, --republish {DEFAULT_S}",
}
TITLES = {
    "faust": "plain Faust, one event at a time",
    "streams": "Kafka Streams, tuned and warm",
    "aiokafka": "plain aiokafka",
}
FORMS: dict[str, tuple[str, Form]] = {
    "rows": ("bench.samples.rows", "rows"),
    "columns": ("bench.samples.columns", "columns"),
}
"""What peers read, in topics whose records are dated by their writers: plain Faust's windows go by that."""
WRITTEN = tuple(topic for topic in TOPICS if topic.producers == ("stream",))
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


Run = Callable[[Rig, str, str], Running]
"""From broker and topic of answers to the running process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One that is measured, and from where to where in the backlog."""

    title: str
    run: Run
    samples: str
    """Topic that it reads."""
    start: int
    end: int
    longest_s: float = LONGEST_S
    begin: reference.Begin | None = reference.sliding
    """What its windows hold; None: the worker, whose answers are others."""


def measure(rig: Rig) -> list[Row]:
    """All in turn, three times, so that a busy moment of the machine does not meet one of them alone.

    The worker reads columns, its peers both forms.
    """
    _classpath(rig)
    size = BRIEF if rig.brief else WHOLE
    kafka = rig.kafka()
    now_ms = SystemClock().wall_ms()
    for topic, form in FORMS.values():
        admin.create(kafka.bootstrap, topic)
        _fill(rig, kafka, topic, backlog(size, now_ms, form))
    _fill(rig, kafka, SAMPLE.name, backlog(size, now_ms, "columns"))
    return _rows(_turns(rig, kafka, _peers(size), size.runs))


def _fill(rig: Rig, kafka: KafkaBroker, topic: str, records: Iterable[Stamped]) -> None:
    written = send.write(kafka.bootstrap, topic, records)
    rig.say(f"peers: {topic} has {written:,} samples, {PODS} pods each")
    log.publish_policy(kafka.bootstrap, log.USUAL_POLICY)


def _turns(rig: Rig, kafka: KafkaBroker, peers: Mapping[str, Peer], runs: int) -> dict[str, list[Cost]]:
    found: dict[str, list[Cost]] = {name: [] for name in peers}
    for turn in range(runs):
        for name, peer in peers.items():
            topic = f"bench-{name.replace(', ', '-')}-{turn}"
            found[name].append(_run(rig, kafka, peer, topic, check_it=turn == 0))
    return found


def backlog(size: Size, now_ms: int, form: Form) -> Iterator[Stamped]:
    """Samples in the order in which they would have come; the seconds begin with a minute, and all end by now."""
    begin_ms = now_ms - size.seconds * 1000
    begin_ms -= begin_ms % (WINDOW_S * 1000)
    policy = log.USUAL_POLICY
    nodes = [
        StampedNode(number, policy, replaced_each_s=REPLACED_EACH_S, form=form) for number in evenly(size.per_partition)
    ]
    for step in range(1 - HISTORY_STEPS, 1):
        yield from (node.stamp(begin_ms - 1000 + step * STEP_S * 1000, STEP_S * 1000) for node in nodes)
    for second in range(size.seconds):
        yield from (node.stamp(begin_ms + second * 1000) for node in nodes)


def _run(rig: Rig, kafka: KafkaBroker, peer: Peer, topic: str, *, check_it: bool) -> Cost:
    """Measure one and see that it works; the topic of a peer's answers is gone afterwards."""
    bootstrap = kafka.bootstrap
    if peer.begin is None:
        # Else it would begin with the windows of the one before.
        for written in WRITTEN:
            kafka.delete(written.name)
        kafka.apply_topics()
        with peer.run(rig, bootstrap, topic) as process:
            paid = cost(bootstrap, COMMAND.name, process, peer.start, peer.end, peer.longest_s, beside=METRIC.name)
        checked = check.ours(bootstrap) if check_it else ""
    else:
        admin.create(bootstrap, topic)
        with peer.run(rig, bootstrap, topic) as process:
            paid = cost(bootstrap, topic, process, peer.start, peer.end, peer.longest_s)
        checked = check.peer(bootstrap, peer.samples, topic, peer.begin) if check_it else ""
        admin.delete(bootstrap, [topic])
    rig.say(
        f"peers: {peer.title}: {paid.per_core_s:,.0f} samples/s per core, {paid.records:,} in {paid.cpu_s:.1f} CPU s "
        f"and {paid.wall_s:.1f} s, {paid.rss_mb:.0f} MB. {checked}"
    )
    return paid


def _rows(found: dict[str, list[Cost]]) -> list[Row]:
    rate = {name: statistics.median(run.per_core_s for run in runs) for name, runs in found.items()}
    n = len(found[JUDGED])
    ours = rate[JUDGED]
    return [
        judged(f"slacktide stream, columns, {PODS} pods: samples per core and second", f">= {SAMPLES_PER_CORE_S:,}",
               f"{ours / SAMPLES_PER_CORE_S:.2f} of the target, {ours / AIM_PER_CORE_S:.2f} of the aim of "
               f"{AIM_PER_CORE_S:,}: {_worker(found[JUDGED])}",
               met=ours >= SAMPLES_PER_CORE_S, n=n, rate=ours, runs=_runs(found[JUDGED])),
        judged("the same against plain Faust on rows", f">= {TIMES_FAUST} x",
               f"{ours / rate['faust, rows']:.2f} x of {rate['faust, rows']:,.0f}",
               met=ours >= TIMES_FAUST * rate["faust, rows"], n=n, ratio=ours / rate["faust, rows"]),
        judged("the same against Kafka Streams on rows, warm", f">= {TIMES_STREAMS} x",
               f"{ours / rate['streams, rows']:.2f} x of {rate['streams, rows']:,.0f}",
               met=ours >= TIMES_STREAMS * rate["streams, rows"], n=n, ratio=ours / rate["streams, rows"]),
        *(told(f"the same against {TITLES[name]} on columns", f"{ours / rate[f'{name}, columns']:.2f} x of "
               f"{rate[f'{name}, columns']:,.0f}", n=n, ratio=ours / rate[f"{name}, columns"])
          for name in ("faust", "streams")),
        *(told(title, _worker(found[name]), n=n, rate=rate[name], runs=_runs(found[name]))
          for name, title in OTHERS.items()),
        *(told(f"{TITLES[name]} on {form}, 60 s windows", f"{_each(runs := found[f'{name}, {form}'])}; "
               f"{max(run.rss_mb for run in runs):.0f} MB", n=n, rate=rate[f"{name}, {form}"], runs=_runs(runs))
          for name in TITLES for form in FORMS),
    ]  # fmt: skip


def _worker(runs: list[Cost]) -> str:
    return f"{_each(runs)}; {runs[-1].beside / runs[-1].records:.2f} NodeMetric a sample, {runs[-1].rss_mb:.0f} MB"


def _each(runs: list[Cost]) -> str:
    middle = statistics.median(run.per_core_s for run in runs)
    return f"median {middle:,.0f}; runs " + ", ".join(f"{run.per_core_s:,.0f}" for run in runs)


def _runs(runs: list[Cost]) -> list[dict[str, float]]:
    return [{"records": run.records, "cpu_s": run.cpu_s, "wall_s": run.wall_s, "rss_mb": run.rss_mb} for run in runs]


def _ours(size: Size, samples: Topic, republish_s: int) -> Peer:
    """A worker, that publishes unchanged figures again after so long."""

    def run(rig: Rig, bootstrap: str, topic: str) -> Running:
        return Slacktide(rig, "stream", "--bootstrap", bootstrap, "--group", topic, "--republish", str(republish_s))

    return Peer(
        title=f"slacktide stream, {samples.name}, --republish {republish_s}",
        run=run,
        samples=samples.name,
        start=size.full,
        end=size.backlog,
        begin=None,
    )


def _python(module: str, samples: str, form: Form, *more: str) -> Run:
    def run(rig: Rig, bootstrap: str, topic: str) -> Running:
        folder = [str(_folder(rig, topic)) for _ in more]
        command = [sys.executable, "-m", module, bootstrap, samples, form, topic, *folder]
        return Running(rig, topic, command, environment())

    return run


def _streams(samples: str, form: Form) -> Run:
    usable = [str(CAPACITY.cpu_milli), str(CAPACITY.mem_bytes), str(USABLE_PART)]

    def run(rig: Rig, bootstrap: str, topic: str) -> Running:
        places = [bootstrap, samples, form, topic, str(_folder(rig, topic))]
        return Running(rig, topic, ["java", "-cp", _classpath(rig), *JVM, "Peer", *places, *usable])

    return run


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
    """The worker on columns, by the longest interval and by the default one, then all peers on both forms."""
    found = {JUDGED: _ours(size, SAMPLE, LONGEST_REPUBLISH_S)}
    found["slacktide, default"] = _ours(size, SAMPLE, DEFAULT_S)
    for name, (samples, form) in FORMS.items():
        title = f"{{}}, {name}".format
        found[f"faust, {name}"] = Peer(
            title=title(TITLES["faust"]),
            run=_python(plain_faust.__name__, samples, form, "its folder"),
            samples=samples,
            start=size.full,
            end=size.full + size.minute,
            longest_s=MINUTE_LONGEST_S,
            begin=reference.tumbling,
        )
        found[f"streams, {name}"] = Peer(
            title=title(TITLES["streams"]),
            run=_streams(samples, form),
            samples=samples,
            start=size.backlog // 2,
            end=size.backlog,
        )
        found[f"aiokafka, {name}"] = Peer(
            title=title(TITLES["aiokafka"]),
            run=_python(plain_aiokafka.__name__, samples, form),
            samples=samples,
            start=size.full,
            end=size.backlog,
        )
    return found
