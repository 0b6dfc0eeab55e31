"""Which minutes of a node's window a worker writes down, so that whoever takes the node over has all of them."""

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse
from slacktide.schemas.topics import DEAD_LETTER, METRIC, WINDOW
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.node_state import Carried, Node
from testbed.samples import START_MS, keyframe, policy_record, record_of

MINUTE_MS = 60_000
LAG_MS = 4_000
"""A minute is written so long after its end at the latest."""
NODES = "node-1", "node-2", "node-3"
DAY = policy_of(Colocation(enable=True, metric_aggregate_duration_s=86_400), ResourceThreshold())


@pytest.fixture
def worker() -> Worker:
    return new()


def new() -> Worker:
    worker = Worker("w")
    worker.policy(policy_record())
    return worker


def tell(worker: Worker, *samples: NodeSample) -> list[Out]:
    return worker.samples([record_of(each) for each in samples], START_MS)


def segments(outs: list[Out]) -> list[NodeWindowSegment]:
    return [decode(out.value, NodeWindowSegment) for out in outs if out.topic == WINDOW.name]


def minutes(outs: list[Out]) -> list[int]:
    return [(each.begin_ms - START_MS) // MINUTE_MS for each in segments(outs)]


def written(outs: list[Out]) -> list[Record]:
    return [
        Record(topic=WINDOW.name, partition=0, offset=0, timestamp_ms=START_MS, key=out.key, value=out.value)
        for out in outs
        if out.topic == WINDOW.name
    ]


def at(at_ms: int, seq: int, interval_ms: int = 1_000, **changes: object) -> NodeSample:
    return keyframe(seq, observed_ms=START_MS + at_ms, interval_ms=interval_ms, **changes)


def set_back(count: int) -> list[NodeSample]:
    """By an hour."""
    return [at(seq * 1_000 - 3_600_000, 1_000 + seq, clock_epoch=1) for seq in range(1, count)]


def test_after_a_clock_was_set_back_minutes_are_written_from_there(worker: Worker) -> None:
    tell(worker, *(keyframe(seq) for seq in range(1, 200)))

    assert minutes(tell(worker, *set_back(190))) == [-60, -59, -58]


def test_who_takes_over_writes_minutes_although_the_last_owner_wrote_some_of_before_the_clock_was_set_back() -> None:
    before, after = new(), new()
    said = tell(before, *(keyframe(seq) for seq in range(1, 200)))
    after.learn(map(record_of, set_back(30)))
    after.restore(written(said))

    assert minutes(tell(after, *set_back(130)[29:])) == [-60, -59]


@pytest.mark.parametrize("interval_ms", [45_000, 60_000, 90_000, 200_000])
def test_every_minute_that_a_long_sample_covers_is_written(worker: Worker, interval_ms: int) -> None:
    outs = tell(worker, *(at(seq * interval_ms, seq, interval_ms) for seq in range(1, 11)))

    assert minutes(outs) == list(range(len(minutes(outs))))
    assert len(minutes(outs)) >= (10 * interval_ms - LAG_MS) // MINUTE_MS


def test_the_minute_in_which_a_node_fell_silent_is_written_when_it_is_back(worker: Worker) -> None:
    outs = tell(worker, *(keyframe(seq) for seq in (*range(1, 31), *range(400, 430))))

    assert [sum(each.covered_ms) for each in segments(outs)] == [30_000, 21_000]
    assert minutes(outs) == [0, 6]


def test_minutes_that_were_over_while_nothing_was_published_are_written_afterwards(worker: Worker) -> None:
    worker.hold_back(0)
    assert minutes(tell(worker, *(keyframe(seq) for seq in range(1, 200)))) == []
    worker.publish(0)

    assert minutes(tell(worker, keyframe(200))) == [0, 1, 2]


def test_a_node_whose_minute_fails_takes_no_other_with_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(worker, *(at(1_000, 1, node=node) for node in NODES))
    in_use = Node.in_use

    def failing(node: Node) -> Carried:
        if node.window.node == NODES[1]:
            raise ValueError("no list")
        return in_use(node)

    monkeypatch.setattr(Node, "in_use", failing)
    outs = tell(worker, *(at(70_000, 2, 69_000, node=node) for node in NODES))
    dead = [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name]

    assert [each.node for each in segments(outs)] == [NODES[0], NODES[2]]
    assert [(letter.key, "no list" in letter.reason) for letter in dead] == [(NODES[1], True)]


def test_a_window_comes_back_whole_however_long_its_samples_are_and_wherever_it_has_gaps(worker: Worker) -> None:
    heard = [at(at_ms, at_ms, interval_ms) for at_ms, interval_ms in GAPPED]
    whole, other = new(), new()
    outs = tell(worker, *heard)
    other.restore(written(outs))
    done_ms = max(each.observed_ms for each in segments(outs))
    for each in (whole, other):
        each.learn(record_of(one) for one in heard if each is whole or one.observed_ms > done_ms)
    last = at(GAPPED[-1][0] + 5_000, 10**9)
    found, wanted = (
        [decode(out.value, NodeMetric) for out in tell(each, last) if out.topic == METRIC.name][-1]
        for each in (other, whole)
    )

    assert found.aggregates == wanted.aggregates
    assert wanted.aggregates[-1].covered_ms == 1_000 + sum(interval_ms for _, interval_ms in GAPPED)


def test_history_that_is_read_again_wipes_nothing_of_what_the_last_owner_wrote(worker: Worker) -> None:
    """It is the first that the new owner hears of a node that is silent just now, and lies before its last minute."""
    late, other = [keyframe(seq) for seq in range(31, 41)], new()
    outs = tell(worker, *(keyframe(seq) for seq in (*range(1, 31), *range(41, 200))))
    other.restore(written(outs)[::-1])
    other.fill(map(record_of, late))
    [metric] = [decode(out.value, NodeMetric) for out in tell(other, keyframe(260)) if out.topic == METRIC.name]

    assert (metric.late, metric.aggregates[0].covered_ms) == (0, 181_000)


def test_what_the_last_owner_answered_but_did_not_commit_wipes_nothing_that_it_wrote(worker: Worker) -> None:
    outs = tell(worker, *(keyframe(seq) for seq in range(1, 200)))
    other = new()
    other.restore(written(outs)[::-1])
    metrics = [
        decode(out.value, NodeMetric)
        for out in tell(other, *(keyframe(seq) for seq in range(175, 210)))
        if out.topic == METRIC.name
    ]

    assert metrics[-1].aggregates[0].covered_ms >= 180_000


GAPPED = [(30_000, 30_000), (40_000, 10_000), (230_000, 150_000), (500_000, 1_000), (610_000, 90_000), (625_000, 9_000)]
"""When and over how long, ms."""


def test_no_machine_is_too_large_for_a_minute(worker: Worker) -> None:
    """Eight terabytes over the slot of a day's window are more byte milliseconds than 64 bits hold."""
    worker.policy(policy_record(DAY))
    mem_bytes = 2**43
    use = NodeUse(cpu_milli=1_000, mem_bytes=mem_bytes)
    heard = [
        at(
            number * 60_000,
            number,
            60_000,
            use=use,
            pod_use=[PodUse(uid="ls", cpu_milli=100, mem_bytes=mem_bytes)],
            policy_version=DAY.version,
        )
        for number in range(1, 150)
    ]
    pods = [pod for each in segments(tell(worker, *heard)) for pod in each.pods]

    [whole] = [pod.mem_bytes_ms for pod in pods if pod.mem_ms == 4_320_000]
    assert whole == pytest.approx(mem_bytes * 4_320_000)
