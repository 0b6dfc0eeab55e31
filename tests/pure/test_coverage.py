"""Which heartbeats count: of the owner of a partition, and only while it is one. What readers make of them."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.bridge.writing import FigureReader, Writing
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import BEAT_NODES_MAX, HEADER, KEY, Heartbeat, heartbeat_of, is_heartbeat
from slacktide.schemas.inventory import Resources
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, METRIC, SCORE, Topic
from slacktide.streams.analysis.explain.figures import freshness_findings
from slacktide.streams.analysis.explain.node_log import covered_of, node_log
from slacktide.streams.analysis.explain.placement import node_rooms
from slacktide.streams.decisions.coverage import LATE_MS, UNCOVERED_S, Coverage, NodeTable
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.governor.governor import Governor
from slacktide.streams.governor.nodes import GONE_MS
from slacktide.streams.records import FIGURES, Record, Writer
from testbed.chains import Chain
from testbed.governed import metric_record
from testbed.scenarios import run, scenarios

from .test_bridge_writing import metric as any_metric

EPOCH_MS = 1_800_000_000_000


def beat(
    nodes: Iterable[str],
    at_s: float,
    *,
    worker: str = "w",
    epoch: int = 1,
    ticked_s: float | None = None,
    topic: Topic = METRIC,
    partition: int = 0,
) -> Record:
    """One that was appended at that second; ``ticked_s``: by the worker's clock, the same unless given."""
    ticked_ms = round((at_s if ticked_s is None else ticked_s) * 1_000)
    message = Heartbeat(worker=worker, epoch=epoch, ticked_ms=ticked_ms, nodes=sorted(nodes))
    outs = Writer(f"stream/{worker}").heartbeats(message, partition, EPOCH_MS)
    [out] = [one for one in outs if one.topic == topic.name]
    return Record(
        topic=out.topic,
        partition=partition,
        offset=0,
        timestamp_ms=EPOCH_MS + round(at_s * 1_000),
        key=out.key,
        value=out.value,
        headers=out.headers,
    )


NODE = ["a"]


def metric(seq: int = 1, **said: Any) -> NodeMetric:
    return any_metric(node="a", seq=seq, **said)


class Received:
    """Heartbeats, and a node's figures as they count by them."""

    def __init__(self) -> None:
        self._coverage, self._latest = Coverage(), NodeTable(NodeMetric)

    def beat(self, at_s: float, *nodes: str, **of: Any) -> list[str]:
        return [*self._coverage.receive(beat(list(nodes), at_s, **of), at_s)]

    def cover(self, at_s: float, *nodes: str) -> None:
        self._latest.cover(nodes, at_s)

    def publish(self, at_s: float, seq: int) -> None:
        self._latest.take(metric(seq), at_s)

    def seen(self, at_s: float) -> list[Any]:
        found = self._latest.of("a", at_s)
        return [found and found.seq, self._latest.is_silent("a", at_s)]


@scenarios("coverage")
def test_coverage(case: dict[str, Any]) -> None:
    run(case, Received)


@given(st.floats(0.95, 1.05), st.integers(20, 200))
def test_a_clock_that_runs_fast_or_slow_costs_no_heartbeat(rate: float, seconds: int) -> None:
    coverage = Coverage()
    for second in range(seconds):
        assert coverage.receive(beat(NODE, second, ticked_s=1_000 + second * rate), second) == NODE


OWNERS = st.lists(
    st.tuples(
        st.floats(0.0, 3 * UNCOVERED_S),  # since the event before
        st.integers(0, 3),  # epoch: its owner is named after it
        st.floats(0.0, 2 * LATE_MS / 1_000),  # how long the record waited on its way
        st.sampled_from(["publish", "cover", "name nobody"]),
    ),
    max_size=30,
)


@given(OWNERS)
def test_a_node_is_fresh_while_it_was_published_or_covered_by_a_heartbeat_that_counts(events) -> None:
    """As long as 15 s, and no longer; said here anew, over all that came."""
    latest, coverage, now_s = NodeTable(NodeMetric), Coverage(), 1_000.0
    fresh_s: list[float] = []
    epoch_now, received_s = -1, 0.0
    last_ms: dict[int, tuple[int, int]] = {}  # of each owner in office, as it was written and appended
    for number, (gap_s, epoch, wait_s, what) in enumerate(events):
        now_s += gap_s
        if what == "publish":
            latest.take(metric(number), now_s)
            fresh_s.append(now_s)
        else:
            names = NODE if what == "cover" else []
            written_ms, appended_ms = round((now_s - wait_s) * 1_000), round(now_s * 1_000)
            record = beat(names, now_s, worker=f"w{epoch}", epoch=epoch, ticked_s=now_s - wait_s)
            latest.cover(coverage.receive(record, now_s), now_s)
            if epoch > epoch_now or (epoch < epoch_now and now_s >= received_s + UNCOVERED_S):
                epoch_now, last_ms = epoch, {}
            if epoch == epoch_now:
                received_s = now_s
                before = last_ms.get(epoch, (written_ms, appended_ms))
                if written_ms >= before[0]:
                    last_ms[epoch] = written_ms, appended_ms
                    waited_ms = (appended_ms - before[1]) - (written_ms - before[0])
                    if names and fresh_s and waited_ms <= LATE_MS:
                        fresh_s.append(now_s)
        wanted = bool(fresh_s) and now_s < fresh_s[-1] + UNCOVERED_S
        assert (latest.of("a", now_s) is not None) == wanted
        if fresh_s:
            assert latest.of("a", fresh_s[-1] + UNCOVERED_S) is None
            assert latest.is_silent("a", fresh_s[-1] + UNCOVERED_S)


def test_many_nodes_are_shared_out_among_records_that_a_broker_takes() -> None:
    names = [f"{number:0253}" for number in range(BEAT_NODES_MAX + 1)]
    message = Heartbeat(worker="w", epoch=2**53, ticked_ms=1, nodes=names)
    outs = Writer("stream/w").heartbeats(message, 3, EPOCH_MS)
    assert [(out.topic, out.key) for out in outs] == [
        (topic, key) for key in (b"#heartbeat", b"#heartbeat-1") for topic in FIGURES
    ]
    assert all(out.value is None and is_heartbeat(out.key) and out.partition == 3 for out in outs)
    read = [heartbeat_of(out.headers) for out in outs if out.topic == METRIC.name]
    assert [name for one in read for name in one.nodes] == names
    assert max(len(dict(out.headers)[HEADER]) for out in outs) < 1 << 20
    coverage = Coverage()
    heard = [coverage.receive(msgspec.structs.replace(beat([], 0), headers=out.headers), 0) for out in outs[::3]]
    assert [name for one in heard for name in one] == names


@pytest.mark.parametrize(
    "headers",
    [(), ((HEADER, b"{"),), ((HEADER, encode(Heartbeat(worker="w", epoch=1, ticked_ms=1)).replace(b"1", b"-1")),)],
    ids=["without its header", "no JSON", "a negative epoch"],
)
def test_one_that_cannot_be_read_covers_nobody_and_is_a_bad_record(headers: tuple[tuple[str, bytes], ...]) -> None:
    bad = Record(topic=METRIC.name, partition=0, offset=3, timestamp_ms=0, key=KEY.encode(), value=None,
                 headers=headers)  # fmt: skip
    with pytest.raises(BadMessageError, match="Heartbeat"):
        Coverage().receive(bad, 0)
    assert covered_of([bad]) == {}
    assert len(Governor("g").receive([bad], 0)) == 1
    laid: list[str] = []
    FigureReader(Cluster("127.0.0.1:1"), Writing(), lambda _, why: laid.append(why), Still())._receive(bad, 0)
    assert len(laid) == 1


class Still:
    """Time that stands still."""

    def mono_ns(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


def test_the_bridge_hears_each_topics_own_heartbeats() -> None:
    """The topics may be with different brokers."""
    writing = Writing()
    reader = FigureReader(Cluster("127.0.0.1:1"), writing, lambda _, why: pytest.fail(why), Still())
    writing.metrics.take(metric(), 0)
    reader._receive(beat(NODE, 10, topic=ALLOCATABLE), 10)
    assert writing.metrics.of("a", 20) is None
    reader._receive(beat(NODE, 11, topic=METRIC), 11)
    assert writing.metrics.of("a", 20) is not None


def test_the_bridge_counts_what_was_there_when_it_connected_by_its_age() -> None:
    reader = FigureReader(Cluster("127.0.0.1:1"), Writing(), lambda _, why: pytest.fail(why), Still())
    metrics = reader._writing.metrics
    metrics.take(metric(), -20)
    reader._receive(beat(NODE, 0), -14)
    assert metrics.of("a", 0.9) is not None
    assert metrics.of("a", 1.0) is None


def scored(view: View, received_s: float, stale_ms: int = 0) -> None:
    said = metric(stale_ms=stale_ms)
    known = {name: getattr(said, name) for name in ("node", "boot_id", "seq", "observed_ms", "policy_version",
                                                     "facts_revision", "pods_revision", "stale_ms")}  # fmt: skip
    use = Use(cpu_milli=8_000, mem_bytes=1 << 34)
    score = NodeScore(**known, allocatable=use, use=use, prod_use=use, batch_left=use)
    for one in (said, score):
        view.receive(one, received_s=received_s, logged_s=received_s)


def test_for_the_scheduler_a_node_is_fresh_while_all_of_it_is_covered() -> None:
    view = View(PlacementArgs())
    scored(view, 0)
    view.cover(NODE, NodeMetric, received_s=14)
    assert view.counts(15.1)[1] == 1
    view.cover([*NODE, "unknown"], NodeScore, received_s=14)
    assert view.counts(29.0) == (1, 0, 0)
    assert view.counts(29.1)[1] == 1


def test_a_node_that_froze_thaws_with_the_next_heartbeat() -> None:
    view = View(PlacementArgs())
    scored(view, 0)
    assert view._nodes["a"].view(20).silent == "frozen"
    for kind in (NodeMetric, NodeScore):
        view.cover(NODE, kind, received_s=20)
    assert view._nodes["a"].view(20).silent == ""


def test_a_stale_metric_grows_no_younger_by_being_covered() -> None:
    view = View(PlacementArgs())
    scored(view, 0, stale_ms=100_000)
    for kind in (NodeMetric, NodeScore):
        view.cover(NODE, kind, received_s=81)
    assert view._nodes["a"].view(80).expired is False
    assert view._nodes["a"].view(81).expired is True
    assert view._nodes["a"].view(81).silent == "stale"


def test_for_the_governor_a_covered_node_lives_unless_its_metric_is_stale() -> None:
    governor = Governor("g")
    governor.receive([metric_record("a", "1-a"), metric_record("b", "1-a")], 0)
    governor.receive([metric_record("b", "1-a", stale_ms=9_000)], 1_000)
    governor.receive([beat(["a", "b", "c"], 20)], 20_000)
    lives = {name for name, node in governor._nodes.items() if node.lives(GONE_MS + 1_000)}
    assert lives == {"a"}
    governor.receive([metric_record("b", "1-a")], 40_000)
    governor.receive([beat(["b"], 60)], 60_000)
    assert governor._nodes["b"].lives(60_000 + GONE_MS - 1)


def test_explain_reads_when_a_node_was_covered_last_by_topic() -> None:
    records = [beat(NODE, 1, epoch=2), beat(NODE, 2, epoch=1), beat(NODE, 3, topic=SCORE)]
    assert covered_of(records) == {(METRIC.name, "a"): EPOCH_MS + 1_000, (SCORE.name, "a"): EPOCH_MS + 3_000}


def test_to_explain_covered_figures_are_neither_behind_nor_stale() -> None:
    """They were published 20 s ago, and did not change."""
    chain = Chain()
    chain.worker.republish_ms = 30_000
    now_ms = chain.run(1, 22)
    asked = Resources(batch_cpu_milli=1)
    plain = node_log("node-1", chain.records)
    outs = chain.worker.heartbeats([0], 1, (), ticked_ms=1, now_ms=now_ms)
    covering = [
        Record(topic=out.topic, partition=0, offset=99, timestamp_ms=now_ms, key=out.key, value=None,
               headers=out.headers) for out in outs
    ]  # fmt: skip
    covered = node_log("node-1", [*chain.records, *covering])

    assert "window.frozen" in {one.name for one in freshness_findings(plain, now_ms)}
    assert "window.frozen" not in {one.name for one in freshness_findings(covered, now_ms)}
    assert node_rooms([plain], asked, None, now_ms)[0].stale_ms > UNCOVERED_S * 1_000
    assert node_rooms([covered], asked, None, now_ms + 15_000)[0].stale_ms == 0
    assert node_rooms([covered], asked, None, now_ms + 15_001)[0].stale_ms == 15_001
