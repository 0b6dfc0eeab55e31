"""A recorded span with forged samples in it replays without keys, as if they had never been sent."""

from collections.abc import Sequence

import msgspec
import pytest

from slacktide.deploy.cli.replay.jobs import Jobs, Plan
from slacktide.schemas.policy import Policy
from slacktide.schemas.proof import Verifier
from slacktide.schemas.topics import COMMAND
from slacktide.streams.analysis.replay.lines import REPLAYED
from slacktide.streams.analysis.replay.policies import WAIT_MS, Proven
from slacktide.streams.analysis.replay.replay import Result
from slacktide.streams.analysis.replay.whatif import Change
from slacktide.streams.proofs import by_keys
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.proofs import REQUIRED, cluster_key, key_of, proven
from testbed.samples import START_MS, keyframe, policy_record, record_of, sample

ANSWER_MS = 40


def trace(policy: Policy = REQUIRED, *, forgeries: bool = True) -> list[Record]:
    """40 s of a node, and of who forges it with higher boots; without headers, as an exported file is read."""
    worker = Worker("w", by_keys(Verifier([cluster_key()])))
    worker.policy(policy_record(policy))
    samples: list[Record] = []
    for second in range(40):
        seq = second + 1
        real = proven(record_of(keyframe(seq) if second % 10 == 0 else sample(seq), offset=2 * second))
        fake = record_of(keyframe(seq, boot_id="999999999999-x", pods=[]), offset=2 * second + 1)
        both = [real, proven(fake, key_of("node-2"))][: 1 + forgeries]
        samples += [msgspec.structs.replace(record, timestamp_ms=START_MS + second * 1_000) for record in both]
    records, places = [], dict.fromkeys(REPLAYED, 0)
    for record in samples:
        for out in worker.samples([record], record.timestamp_ms + ANSWER_MS):
            if out.topic in places:
                places[out.topic] += 1
                at = {"offset": places[out.topic], "timestamp_ms": record.timestamp_ms + ANSWER_MS, "headers": ()}
                records.append(msgspec.structs.replace(record, topic=out.topic, key=out.key, value=out.value, **at))
        records.append(msgspec.structs.replace(record, headers=()))
    return sorted(records, key=lambda one: (one.timestamp_ms, REPLAYED.index(one.topic), one.offset))


def run(records: Sequence[Record], other: Policy | None = None) -> Result | Change:
    jobs = Jobs(Plan(policies=[policy_record(REQUIRED)], since_ms=START_MS, other=other), 1)
    for record in records:
        jobs.take([record])
    return jobs.finish()


def test_a_replay_takes_the_recorded_verdicts() -> None:
    result = run(trace())
    assert isinstance(result, Result)
    assert (result.equal, result.samples, result.unproven, result.unanswered) == (True, 40, 40, 0)
    assert result.differences == []


def test_what_if_leaves_forged_samples_out() -> None:
    forged, clean = run(trace(), REQUIRED), run(trace(forgeries=False), REQUIRED)
    assert isinstance(forged, Change)
    assert forged.unproven == 40
    assert msgspec.structs.replace(forged, unproven=0) == clean


def gone_through(records: Sequence[Record]) -> tuple[list[Record], int]:
    left: list[Record] = []
    stage = Proven([policy_record(REQUIRED)], left.append)
    for record in records:
        stage.take(record)
    stage.finish()
    return left, stage.dropped


def test_what_is_left_is_in_order_whenever_the_answers_come() -> None:
    records = trace()
    late = [
        msgspec.structs.replace(one, timestamp_ms=one.timestamp_ms + 20_000) if one.topic == COMMAND.name else one
        for one in records
    ]
    late.sort(key=lambda one: (one.timestamp_ms, REPLAYED.index(one.topic), one.offset))
    for some in (records, late):
        left, dropped = gone_through(some)
        assert dropped == 40
        assert left == [one for one in some if one in left]
        assert len(left) == len(some) - 80


def test_a_sample_without_an_answer_holds_nothing_up_for_ever() -> None:
    unanswered = [one for one in trace() if one.topic != COMMAND.name]
    left: list[Record] = []
    stage = Proven([policy_record(REQUIRED)], left.append)
    for record in unanswered:
        stage.take(record)
    assert left[-1].timestamp_ms >= unanswered[-1].timestamp_ms - WAIT_MS - 1_000
    stage.finish()
    assert left == unanswered


@pytest.mark.parametrize("value", [None, b"", b"{", b'{"sample":1}'])
def test_odd_answers_are_handed_on(value: bytes | None) -> None:
    [answer] = [one for one in trace() if one.topic == COMMAND.name][:1]
    odd = msgspec.structs.replace(answer, value=value)
    assert gone_through([odd])[0] == [odd]
