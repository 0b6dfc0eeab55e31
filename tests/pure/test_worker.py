"""What the worker answers and publishes, record by record."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.inventory import NodeInventory, Resources, revision_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import DEFAULT, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, DEAD_LETTER, METRIC, SAMPLE, SCORE, WINDOW
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.samples import (
    BATCH,
    FACTS,
    SERVICE,
    START_MS,
    SUPPRESS,
    inventory_record,
    keyframe,
    policy_record,
    raw_record,
    record_of,
    sample,
)
from testbed.scenarios import run, scenarios

NOW_MS = START_MS + 1_000_000
RECORD: dict[str, Any] = {"topic": WINDOW.name, "partition": 0, "offset": 0, "timestamp_ms": START_MS}
"""Of a segment."""


@pytest.fixture
def worker() -> Worker:
    worker = Worker("w")
    assert worker.policy(policy_record()) == []
    return worker


def tell(worker: Worker, *samples: NodeSample) -> list[Out]:
    return worker.samples([record_of(each) for each in samples], NOW_MS)


def answers(outs: list[Out]) -> list[NodeCommand]:
    return [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]


def answer(worker: Worker, said: NodeSample) -> NodeCommand:
    [command] = answers(tell(worker, said))
    return command


def decided(command: NodeCommand) -> NodeCommand:
    """The command without where and when it was made."""
    return msgspec.structs.replace(command, decided_ms=0, worker="", sample=None)


def test_a_sample_is_answered_with_what_shall_hold_and_why(worker: Worker) -> None:
    """Allowed are 4 CPUs x 65% - 1 CPU = 160,000 us; a raise goes by at most 10% of the node: 40,000 us."""
    command = answer(worker, keyframe(7))

    [hold] = command.hold
    assert (command.answer, hold.limits.be_cfs_quota_us, hold.bound) == ("set", 150_000, "stepped")
    assert hold.id == command_id("node-1", command.boot_id, 7, "cpu_suppress", "besteffort", SUPPRESS.version)
    assert hold.terms["allowed_milli"] == 1_600
    assert command.id == command_id("node-1", command.boot_id, 7, "answer", "node-1", SUPPRESS.version)
    assert (command.observed_ms, command.decided_ms, command.worker) == (START_MS + 7_000, NOW_MS, "w")
    assert (command.sample.topic, command.sample.partition, command.sample.offset) == (SAMPLE.name, 0, 7)


def test_the_answer_goes_to_the_samples_partition_under_the_nodes_key(worker: Worker) -> None:
    outs = worker.samples([record_of(keyframe(1), partition=9)], NOW_MS)

    assert {(out.topic, out.partition, out.key) for out in outs} == {
        (topic.name, 9, b"node-1") for topic in (COMMAND, METRIC, ALLOCATABLE, SCORE)
    }
    assert {dict(out.headers)["ce_source"] for out in outs} == {b"stream/w"}
    assert len({dict(out.headers)["traceparent"][:35] for out in outs}) == 1, "one trace from sample to outcome"


def test_keep_is_lean(worker: Worker) -> None:
    said = keyframe(1, limits=Limits(be_cfs_quota_us=160_000))
    [out] = [out for out in tell(worker, said) if out.topic == COMMAND.name]

    assert (out.answer, out.age_ms) == ("keep", NOW_MS - START_MS - 1_000)
    assert len(out.value or b"") < 450
    assert decode(out.value, NodeCommand).hold == []


def test_a_redelivered_sample_is_answered_the_same(worker: Worker) -> None:
    """Also after the pods have changed, and whether or not it is the one that carried them."""
    samples = [keyframe(1), sample(2), sample(3, pods=[BATCH], pods_revision=revision_of([BATCH])), sample(4)]
    first = [answer(worker, each) for each in samples]
    again = [answer(worker, each) for each in samples]

    assert [decided(each) for each in again] == [decided(each) for each in first]
    assert worker.late_samples == 4


def test_an_older_pod_list_does_not_come_back(worker: Worker) -> None:
    """A zombie's sample is answered by what it carries, and what the node is known by stays."""
    alone = Worker("w")
    alone.policy(policy_record())
    tell(alone, keyframe(10, pods=[BATCH], pods_revision="r"))
    tell(worker, keyframe(10, pods=[BATCH], pods_revision="r"))
    stale = answer(worker, keyframe(3, pods=[SERVICE], pods_revision="r"))
    now = sample(11, pods_revision="r")

    assert decided(answer(worker, now)) == decided(answer(alone, now))
    assert stale.answer == "set"
    assert worker.late_samples == 1


# Policy


def test_without_any_policy_the_builtin_one_is_in_force() -> None:
    assert answer(Worker("w"), keyframe(1, policy_version=DEFAULT.version)).answer == "set", "the limit is lifted"


@pytest.mark.parametrize("value", [b"{", b'{"version":3}', b"\xff"])
def test_a_bad_policy_is_a_dead_letter_and_the_last_good_one_stays(worker: Worker, value: bytes) -> None:
    [out] = worker.policy(policy_record(value))

    assert (out.topic, out.key) == (DEAD_LETTER.name, b"policy")
    assert worker.in_force == SUPPRESS


@pytest.mark.parametrize("window_s", [0, -1, 86_401])
def test_a_policy_with_an_impossible_window_is_refused(worker: Worker, window_s: int) -> None:
    colocation = msgspec.structs.replace(SUPPRESS.colocation, metric_aggregate_duration_s=window_s)

    assert len(worker.policy(policy_record(policy_of(colocation, SUPPRESS.resource_threshold)))) == 1
    assert worker.in_force == SUPPRESS


def test_a_null_policy_changes_nothing(worker: Worker) -> None:
    assert worker.policy(policy_record(None)) == []
    assert worker.in_force == SUPPRESS
    assert "the policy is deleted" in worker.policies.refused


def test_a_policy_writer_of_an_older_epoch_is_not_heard(worker: Worker) -> None:
    newer = msgspec.structs.replace(SUPPRESS, writer_epoch=5)
    worker.policy(policy_record(newer))
    worker.policy(policy_record(msgspec.structs.replace(DEFAULT, writer_epoch=4)))

    assert worker.in_force == newer
    assert "writer_epoch 4, accepted: at least 5" in worker.policies.refused


def test_the_first_policy_of_another_installation_takes_effect_whatever_its_epoch(worker: Worker) -> None:
    """A Kafka that was made anew knows nothing of the epochs of the old one."""
    worker.policy(policy_record(msgspec.structs.replace(SUPPRESS, installation="old", writer_epoch=5)))
    anew = msgspec.structs.replace(DEFAULT, installation="new", writer_epoch=1)
    worker.policy(policy_record(anew))

    assert (worker.in_force, worker.policies.refused) == (anew, "")


# Inventory


@given(
    told=st.lists(
        st.tuples(st.sampled_from(["node-1", "node-2", "node-3"]), st.integers(100, 4_000)), min_size=1, max_size=30
    ),
    cuts=st.sets(st.integers(0, 30)),
)
def test_figures_are_the_same_whichever_answers_they_waited_for(told: list[tuple[str, int]], cuts: set[int]) -> None:
    """And in the same order of each node."""
    seqs = Counter[str]()
    records = []
    for node, cpu_milli in told:
        seqs[node] += 1
        use = NodeUse(cpu_milli=cpu_milli, mem_bytes=1)
        records.append(record_of(keyframe(seqs[node], node, use=use)))
    at_once, in_turns = Worker("w"), Worker("w")
    for each in (at_once, in_turns):
        each.policy(policy_record())

    wanted = [out for record in records for out in at_once.samples([record], NOW_MS)]
    found: list[Out] = []
    for number, record in enumerate(records):
        found += in_turns.answers([record], NOW_MS)
        if number in cuts:
            found += in_turns.figures(NOW_MS)
    found += in_turns.figures(NOW_MS)

    assert in_turns.unpublished == 0
    for topic in (COMMAND.name, METRIC.name, ALLOCATABLE.name, SCORE.name):
        for node in seqs:
            of_node = [
                [out for out in outs if (out.topic, out.key) == (topic, node.encode())] for outs in (found, wanted)
            ]
            assert of_node[0] == of_node[1]


def test_of_a_node_that_has_gone_since_it_was_answered_nothing_is_published(worker: Worker) -> None:
    worker.answers([record_of(keyframe(1))], NOW_MS)
    worker.inventory(inventory_record(None))
    worker.answers([record_of(keyframe(1, "node-2"), partition=3)], NOW_MS)
    worker.forget(3)

    assert worker.figures(NOW_MS) == []


def test_a_bad_inventory_is_a_dead_letter(worker: Worker) -> None:
    """Not JSON, or another node than its key."""
    other = NodeInventory(node="node-2", revision="r", facts=FACTS)

    assert [out.topic for out in worker.inventory(inventory_record(b"{"))] == [DEAD_LETTER.name]
    assert [out.topic for out in worker.inventory(inventory_record(other))] == [DEAD_LETTER.name]
    assert worker.inventories == 0


# Figures


def figures(outs: list[Out]) -> tuple[list[NodeMetric], list[NodeAllocatable]]:
    return (
        [decode(out.value, NodeMetric) for out in outs if out.topic == METRIC.name],
        [decode(out.value, NodeAllocatable) for out in outs if out.topic == ALLOCATABLE.name],
    )


def test_percentiles_are_published_with_what_they_cover(worker: Worker) -> None:
    [*_, metric], _ = figures(
        tell(
            worker,
            *(keyframe(seq, use=NodeUse(cpu_milli=1_500 + seq, mem_bytes=4 * 2**30)) for seq in range(1, 101)),
            keyframe(106),
        )
    )

    assert [(one.window_ms, one.covered_ms) for one in metric.aggregates] == [
        (300_000, 101_000),
        (600_000, 101_000),
        (1_800_000, 101_000),
    ]
    cpu = metric.aggregates[0].node_cpu_milli
    assert (cpu.avg, cpu.p50, cpu.p90, cpu.p95, cpu.p99) == (1_550, 1_550, 1_590, 1_595, 1_599)


def test_each_boot_has_its_own_late_samples_however_long_its_figures_waited(worker: Worker) -> None:
    """The next boot may be heard of before the last one's figures are published."""
    heard = [
        keyframe(1),
        keyframe(2),
        keyframe(2),
        keyframe(7),
        keyframe(13, boot_id="000000000002-0000000a"),
        keyframe(8),
    ]
    metrics, _ = figures(tell(worker, *heard))

    assert [(metric.seq, metric.late) for metric in metrics] == [(1, 0), (7, 1), (13, 0)]


def test_a_minute_is_said_once_when_it_is_over_and_another_worker_takes_it_up(worker: Worker) -> None:
    begin = 60 - START_MS // 1_000 % 60
    outs = tell(worker, *(keyframe(seq) for seq in range(begin, begin + 66)))
    segments = [out for out in outs if out.topic == WINDOW.name]
    assert len(segments) == len({out.value for out in segments})
    other = Worker("other")
    other.policy(policy_record())
    *_, segment = segments
    record = Record(**RECORD, key=segment.key, value=segment.value)

    assert other.restore([record]) == []
    other.hold_back(0)
    assert figures(tell(other, keyframe(begin + 66)))[0] == []
    other.publish(0)
    [metric], _ = figures(tell(other, keyframe(begin + 67)))
    assert metric.aggregates[0].covered_ms == 62_000
    assert [out.topic for out in other.restore([msgspec.structs.replace(record, value=b"{")])] == [DEAD_LETTER.name]


def test_a_sample_that_comes_late_fills_its_gap_mute(worker: Worker) -> None:
    tell(worker, keyframe(1), keyframe(10))
    assert worker.fill([record_of(sample(5)), raw_record(b"{", key=b"node-1")])[0].topic == DEAD_LETTER.name
    [metric], _ = figures(tell(worker, keyframe(15)))

    assert metric.aggregates[0].covered_ms == 4_000


def test_a_gap_is_filled_before_what_was_answered_behind_it_is_published(worker: Worker) -> None:
    """It lies before the newest sample, which is in no window yet."""
    tell(worker, keyframe(1), keyframe(2))
    worker.answers([record_of(sample(5))], NOW_MS)
    outs = worker.fill([record_of(sample(seq)) for seq in (3, 4)])
    [metric] = figures(outs + tell(worker, sample(7)))[0][-1:]

    assert metric.aggregates[0].covered_ms == 6_000


def test_a_minute_of_before_a_clock_was_set_back_makes_no_sample_late(worker: Worker) -> None:
    """Said by the last owner: who takes over has heard the node since."""
    owner = Worker("owner")
    owner.policy(policy_record())
    segments = [
        Record(**RECORD, key=out.key, value=out.value)
        for out in tell(owner, *(keyframe(seq) for seq in range(600, 800)))
        if out.topic == WINDOW.name
    ]
    back = [keyframe(seq, boot_id="000000000002-0000000b") for seq in range(1, 5)]
    worker.learn(map(record_of, back[:3]))

    assert segments
    assert worker.restore(segments) == []
    [metric], _ = figures(tell(worker, *back[3:]))
    assert (metric.late, metric.aggregates[0].covered_ms) == (0, 4_000)


def test_a_minute_that_reaches_beyond_what_was_heard_is_told_of_by_the_next_samples() -> None:
    """Its last owner had answered more than it could commit."""
    minutes = policy_of(Colocation(enable=True, metric_aggregate_duration_s=300), ResourceThreshold())
    heard = [
        keyframe(seq, observed_ms=START_MS + seq * 1_000 + 400, policy_version=minutes.version) for seq in range(1, 90)
    ]
    owner, worker = Worker("owner"), Worker("worker")
    for each in (owner, worker):
        each.policy(policy_record(minutes))
    [segment] = [out for out in tell(owner, *heard) if out.topic == WINDOW.name]
    over_ms = decode(segment.value, NodeWindowSegment).observed_ms
    first = next(at for at, each in enumerate(heard) if each.observed_ms > over_ms - 2_000)
    worker.learn(map(record_of, heard[first - 20 : first]))
    worker.restore([Record(**RECORD, key=segment.key, value=segment.value)])
    [*_, metric], _ = figures(tell(worker, *heard[first:]))

    assert metric.late == 0
    assert metric.covered_ms == metric.aggregates[0].covered_ms == metric.seq * 1_000


@pytest.mark.parametrize("phase_ms", [0, 1, 400, 500, 999])
def test_what_was_learned_beside_is_filled_in_as_if_it_had_been_heard(worker: Worker, phase_ms: int) -> None:
    """To the millisecond, also of the second that the two share; and twice is once."""
    heard = [keyframe(seq, observed_ms=START_MS + seq * 1_000 + phase_ms) for seq in range(1, 91)]
    always, beside = Worker("always"), worker.aside()
    always.policy(policy_record())
    beside.learn(map(record_of, heard[:60]))
    tell(worker, *heard[60:80])
    tell(always, *heard[:80])
    for _ in range(2):
        list(worker.fill_from(beside, 0, 2))
    [wanted, *_], _ = figures(tell(always, *heard[80:]))
    [found, *_], _ = figures(tell(worker, *heard[80:]))

    assert found.aggregates == wanted.aggregates
    assert (found.covered_ms, found.node_use, found.pods) == (wanted.covered_ms, wanted.node_use, wanted.pods)


# What the log refuses


def test_an_answer_that_the_log_refuses_is_a_dead_letter_and_the_node_is_answered_skipped(worker: Worker) -> None:
    [out, *_] = tell(worker, keyframe(1))
    letter, skipped = worker.refused(out, "MessageSizeTooLarge", NOW_MS)

    assert letter.topic == DEAD_LETTER.name
    assert (skipped.topic, skipped.partition, skipped.key, skipped.answer) == (COMMAND.name, 0, b"node-1", "skipped")
    command = decode(skipped.value, NodeCommand)
    assert (command.id, command.seq, command.hold) == (decode(out.value, NodeCommand).id, 1, [])
    assert command.reason == "the answer was refused: MessageSizeTooLarge"
    assert [each.topic for each in worker.refused(skipped, "again", NOW_MS)] == [DEAD_LETTER.name]


ENCODE = msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=700, batch_mem_bytes=2**30))
LISTED = {
    "ls": SERVICE,
    "be": BATCH,
    "be-2": msgspec.structs.replace(BATCH, uid="be-2", name="more"),
    "x": msgspec.structs.replace(BATCH, uid="x", name="more"),
    "new": msgspec.structs.replace(SERVICE, uid="new", requests=Resources(cpu_milli=600)),
    "asks": ENCODE,
    "done": msgspec.structs.replace(ENCODE, uid="done", phase="Succeeded"),
    "free": msgspec.structs.replace(
        ENCODE, priority_class_label="koord-free", requests=Resources(free_cpu_milli=300, free_mem_bytes=2**30)
    ),
    "large": msgspec.structs.replace(BATCH, requests=Resources(batch_cpu_milli=3_000, mid_cpu_milli=200)),
}


class Told:
    """A worker that is told of one node, and what it writes."""

    def __init__(self) -> None:
        self._worker = Worker("w")
        self._worker.policy(policy_record())

    def sample(self, seq: int, *, make: Any = sample, **of: Any) -> list[Any]:
        """``cpu``: the node's, beside 4 GiB. ``uses``: CPU of pods. ``listed``: the pods, by their names."""
        if "cpu" in of:
            of["use"] = {"cpu_milli": of.pop("cpu"), "mem_bytes": 4 * 2**30}
        if "use" in of:
            of["use"] = msgspec.convert(of["use"], NodeUse)
        if "listed" in of:
            of["pods"] = [LISTED[name] for name in of.pop("listed")]
            of["pods_revision"] = revision_of(of["pods"])
        if "uses" in of:
            of["pod_use"] = [
                PodUse(uid=uid, cpu_milli=milli, mem_bytes=2**20, best_effort_group=uid.startswith("be"))
                for uid, milli in of.pop("uses").items()
            ]
        if of.get("policy_version") == "in force":
            of["policy_version"] = self._worker.in_force.version
        if "after_ms" in of:
            of["observed_ms"] = START_MS + of.pop("after_ms")
        return self._written(tell(self._worker, make(seq, **of)))

    def keyframe(self, seq: int, **of: Any) -> list[Any]:
        return self.sample(seq, make=keyframe, **of)

    def pods_change(self, seq: int, listed: list[str], **uses: int | None) -> list[Any]:
        """The system uses 500 millicores, the node what all use."""
        return self.keyframe(seq, cpu=500 + sum(milli or 0 for milli in uses.values()), listed=listed, uses=uses)

    def _written(self, outs: list[Out]) -> list[Any]:
        found: list[Any] = []
        for out in outs:
            if out.topic == COMMAND.name:
                command = decode(out.value, NodeCommand)
                limits = [hold.limits for hold in command.hold]
                found.append([command.answer, *([command.reason] if command.reason else limits)])
            elif out.value is None:
                found.append([out.topic, out.partition, (out.key or b"").decode(), None])
            elif out.topic == METRIC.name:
                one = decode(out.value, NodeMetric)
                pods = {pod.uid: [pod.priority_class, pod.qos, pod.use.cpu_milli] for pod in one.pods}
                covered = [one.samples, one.covered_ms, one.aggregates[0].covered_ms, one.late]
                found.append({"metric": [one.node_use, one.system_use], "covered": covered, "pods": pods})
                found[-1] |= {"stale_ms": one.stale_ms} if one.stale_ms else {}
            elif out.topic == ALLOCATABLE.name:
                batch = decode(out.value, NodeAllocatable)
                of = [batch.batch_cpu_milli, batch.batch_mem_bytes, batch.mid_cpu_milli]
                found.append({"sold": of, "floored": batch.floored, "reason": batch.reason, "by": batch.cpu_terms})
                found[-1] |= {"mid_by": batch.mid_cpu_terms} if batch.mid_cpu_milli else {}
                found[-1] |= {"free": [batch.free_cpu_milli, batch.free_mem_bytes]} if batch.free_mem_bytes else {}
                found[-1] |= {"stale_ms": batch.stale_ms, "degraded": batch.degraded} if batch.stale_ms else {}
            elif out.topic == SCORE.name and (
                (score := decode(out.value, NodeScore)).stale_ms or score.free_left.cpu_milli
            ):
                found.append({"score": [score.use, score.batch_left, score.free_asked, score.free_left]})
                found[-1] |= {"stale_ms": score.stale_ms} if score.stale_ms else {}
        return found

    def learn(self, *seqs: int) -> None:
        """The first one carries pods and facts; the last record is none."""
        first, *rest = seqs
        self._worker.learn([record_of(keyframe(first)), *(record_of(sample(seq)) for seq in rest)])
        self._worker.learn([policy_record(b"no sample")])

    def policy(self, colocation: dict[str, Any] | None = None, **threshold: Any) -> None:
        of = msgspec.structs.replace(SUPPRESS.colocation, **colocation or {})
        self._worker.policy(
            policy_record(policy_of(of, msgspec.structs.replace(SUPPRESS.resource_threshold, **threshold)))
        )

    def inventory(self, *gone: None, **of: Any) -> list[Any]:
        told = None if gone else NodeInventory(node="node-1", revision="r", facts=FACTS, **of)
        return self._written(self._worker.inventory(inventory_record(told)))

    def forget(self) -> None:
        self._worker.forget(0)

    def publish(self) -> None:
        self._worker.publish(0)

    def silent(self, silent_ms: int, node: str = "node-1") -> list[Any]:
        return self._written(self._worker.silent({node: silent_ms}))

    def late(self) -> int:
        return self._worker.late_samples


@scenarios("worker_stale")
def test_worker_stale(case: dict[str, Any]) -> None:
    """Of a node that is silent."""
    run(case, Told)


@scenarios("worker")
def test_worker(case: dict[str, Any]) -> None:
    run(case, Told)
